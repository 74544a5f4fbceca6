"""Users: what a record may hold, and what it may not."""

import pytest

from logbrook.core.users import Users, decode_credentials, encode_credentials
from logbrook.model.security import SaslMechanism, ScramCredential

CREDENTIAL = ScramCredential(b"salt", b"stored", b"server", 4096)


def test_a_record_that_users_have_not_written_is_refused_and_changes_nothing() -> None:
    users = Users()
    for key, value in users.change("alice", {SaslMechanism.SCRAM_SHA_256: CREDENTIAL}):
        users.replay(key, value)
    for content in (b"", b"[]", b"5", b'{"PLAIN": 1}', b'{"MD5": {}}', b'{"SCRAM-SHA-256": {"salt": "!"}}', b"\xff"):
        with pytest.raises(ValueError, match=r".*"):
            users.replay("scram/alice", content)
        users.validate()
    assert users.credentials("alice") == {SaslMechanism.SCRAM_SHA_256: CREDENTIAL}
    assert users.shapes.total() == 1


def test_a_user_without_credentials_does_not_exist() -> None:
    users = Users()
    users.replay("scram/alice", b"{}")
    users.validate()
    assert (len(users), list(users.names)) == (0, [])


def test_secrets_are_not_in_the_text_of_a_credential() -> None:
    assert "stored" not in repr(CREDENTIAL)
    assert decode_credentials({}) == {}
    assert b"c3RvcmVk" in encode_credentials({SaslMechanism.SCRAM_SHA_512: CREDENTIAL})
