"""Users: replaying the records of any changes gives the same state, from all records and from the last ones alone."""

from hypothesis import given
from hypothesis import strategies as st

from logbrook.core.users import UnknownCredentialError, UserRecord, Users
from logbrook.model.security import SaslMechanism, ScramCredential

MECHANISMS = [SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512]
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
credentials = st.builds(
    ScramCredential,
    st.binary(max_size=20),
    st.binary(max_size=4),
    st.binary(max_size=4),
    st.integers(min_value=4096, max_value=4098),
)
changes = st.lists(
    st.tuples(
        st.one_of(names, st.sampled_from(["alice", "a/b", "a%2Fb", "é", " "])),
        st.dictionaries(st.sampled_from(MECHANISMS), credentials),
        st.lists(st.sampled_from(MECHANISMS), unique=True),
    )
)


@given(changes)
def test_replay_reproduces_the_users(
    changes: list[tuple[str, dict[SaslMechanism, ScramCredential], list[SaslMechanism]]],
) -> None:
    users, model = Users(), dict[str, dict[SaslMechanism, ScramCredential]]()
    records: list[UserRecord] = []
    for user, upserts, deletions in changes:
        expected = dict(model.get(user, {}))
        is_refused = any(mechanism not in expected for mechanism in deletions)
        try:
            made = users.change(user, upserts, deletions)
        except UnknownCredentialError:
            assert is_refused
            continue
        assert not is_refused
        for mechanism in deletions:
            del expected[mechanism]
        model[user] = {**expected, **upserts}
        for key, value in made:
            users.replay(key, value)
        records += made
        users.validate()
    expected_users = {user: credentials for user, credentials in model.items() if credentials}
    assert state(users) == expected_users
    for replayed in (records, dict(records).items()):
        other = Users()
        for key, value in replayed:
            other.replay(key, value)
        other.validate()
        assert state(other) == expected_users
        assert other.shapes == users.shapes


def state(users: Users) -> dict[str, dict[SaslMechanism, ScramCredential]]:
    return {user: dict(users.credentials(user)) for user in users.names}
