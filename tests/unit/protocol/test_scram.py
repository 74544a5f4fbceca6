"""SCRAM against published vectors, both sides against each other, and messages of hostile peers."""

import hmac
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbrook.model.security import SaslMechanism, ScramCredential
from logbrook.protocol.scram import (
    ITERATIONS_MIN,
    ScramClientExchange,
    ScramError,
    ScramServerExchange,
    credential_of,
    salted_password,
)

SALT = b"0123456789abcdef"
SHA_256 = SaslMechanism.SCRAM_SHA_256
SHA_512 = SaslMechanism.SCRAM_SHA_512


def credential(password: str = "pencil", mechanism: SaslMechanism = SHA_256) -> ScramCredential:
    salted = salted_password(mechanism, password, SALT, ITERATIONS_MIN)
    return credential_of(mechanism, salted, SALT, ITERATIONS_MIN)


CREDENTIAL = credential()


def exchange_until_final(client: ScramClientExchange) -> tuple[ScramServerExchange, bytes]:
    server = ScramServerExchange(SHA_256, "server-nonce")
    server.read_first(client.first_message())
    return server, client.final_message(server.first_message(CREDENTIAL))


def test_both_sides_send_the_messages_of_rfc_7677() -> None:
    client = ScramClientExchange(SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    server = ScramServerExchange(SHA_256, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    salt = bytes.fromhex("5b6d99689d12358eeca04b141236fa81")
    user = credential_of(SHA_256, salted_password(SHA_256, "pencil", salt, 4096), salt, 4096)
    server.read_first(client.first_message())
    server_first = server.first_message(user)
    client_final = client.final_message(server_first)
    server_final = server.final_message(client_final)
    client.verify(server_final)
    assert client.first_message() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert server.username == "user"
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert server_first == b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert client_final == b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert server_final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_the_server_and_the_client_of_kafka_python_accept_each_other(mechanism: SaslMechanism) -> None:
    from kafka.net.sasl.scram import ScramClient  # noqa: PLC0415 - its import warns

    theirs = ScramClient("user", "pencil", mechanism)
    server = ScramServerExchange(mechanism, "server-nonce")
    server.read_first(theirs.first_message())
    theirs.process_server_first_message(server.first_message(credential("pencil", mechanism)))
    theirs.process_server_final_message(server.final_message(theirs.final_message()))


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_any_user_name_survives_the_exchange(username: str) -> None:
    server = ScramServerExchange(SHA_256, "s")
    server.read_first(ScramClientExchange(SHA_256, username, "", "c").first_message())
    assert server.username == username


def test_names_and_passwords_are_utf_8_without_normalisation() -> None:
    password = "pass\u00aaword\u00ad\u2168"
    client = ScramClientExchange(SHA_512, "J\u00fcrgen, a=b", password, "client-nonce")
    server = ScramServerExchange(SHA_512, "server-nonce")
    server.read_first(client.first_message())
    client_final = client.final_message(server.first_message(credential(password, SHA_512)))
    client.verify(server.final_message(client_final))


def test_a_wrong_password_is_refused() -> None:
    server, client_final = exchange_until_final(ScramClientExchange(SHA_256, "user", "wrong", "c"))
    with pytest.raises(ScramError, match="proof does not match"):
        server.final_message(client_final)


def test_the_keys_are_in_no_text_about_a_credential() -> None:
    assert repr(CREDENTIAL) == "ScramCredential(iterations=4096)"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=abc",
        b"n,,n=us\0er,r=abc",
        b"n,,n=user,r=a bc",
        b"n,,n=\xff\xfe,r=abc",
        b"n,,m=ext,n=user,r=abc",
        b"n,,n=user,r=abc,",
        b"p=tls-unique,,n=user,r=abc",
        b"n,a=admin,n=user,r=abc",
        b"n,,n=user,r=" + b"a" * 20_000,
        b"n,,n=" + b"=2C" * 20_000,
    ],
)
def test_a_server_refuses_a_malformed_first_message(message: bytes) -> None:
    server = ScramServerExchange(SHA_256, "s")
    with pytest.raises(ScramError):
        server.read_first(message)
    assert server.username == ""


def test_an_authorization_id_equal_to_the_user_and_unknown_extensions_are_accepted() -> None:
    server = ScramServerExchange(SHA_256, "s")
    server.read_first(b"n,a=a=2Cb,n=a=2Cb,r=abc,tokenauth=true")
    assert server.username == "a,b"
    server.first_message(CREDENTIAL)
    with pytest.raises(ScramError, match="channel binding"):
        server.final_message(b"c=biws,r=abcs,p=" + b64encode(bytes(32)))


@pytest.mark.parametrize(
    "change",
    [
        (b"c=biws", b"c=eSws"),
        (b"c=biws", b"c=bi$s"),
        (b"server-nonce", b"server-nonc"),
        (b"client", b"other"),
        (b",p=", b",p=AAAA,p="),
        (b",p=", b",x=y,p="),
        (b",p=", b",q="),
        (b"=,p=", b"=,p==="),
    ],
)
def test_a_server_refuses_a_changed_final_message(change: tuple[bytes, bytes]) -> None:
    server, client_final = exchange_until_final(ScramClientExchange(SHA_256, "user", "pencil", "client"))
    with pytest.raises(ScramError):
        server.final_message(client_final.replace(*change) if change[0] in client_final else b"")


@pytest.mark.parametrize(("nonce", "is_accepted"), [("clientclientserver", True), ("xclientserver", False)])
def test_the_final_message_of_an_older_librdkafka_is_accepted(nonce: str, is_accepted: bool) -> None:
    """Before 2.6.1 it wrote its own nonce twice; the server's is still in it, so nothing can be replayed."""
    server = ScramServerExchange(SHA_256, "server")
    server.read_first(b"n,,n=user,r=client")
    unproven = f"c=biws,r={nonce}"
    auth_message = f"n=user,r=client,{server.first_message(CREDENTIAL).decode()},{unproven}".encode()
    client_key = hmac.digest(salted_password(SHA_256, "pencil", SALT, ITERATIONS_MIN), b"Client Key", "sha256")
    signature = hmac.digest(CREDENTIAL.stored_key, auth_message, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = unproven.encode() + b",p=" + b64encode(proof)
    if is_accepted:
        assert server.final_message(final).startswith(b"v=")
    else:
        with pytest.raises(ScramError, match="nonce"):
            server.final_message(final)


@pytest.mark.parametrize("proof", [b"", b"=", b"====", b"AAAA", b"AA", b64encode(bytes(33)), b64encode(bytes(32))])
def test_a_server_refuses_a_proof_of_another_form(proof: bytes) -> None:
    server, client_final = exchange_until_final(ScramClientExchange(SHA_256, "user", "pencil", "client"))
    with pytest.raises(ScramError):
        server.final_message(client_final.partition(b",p=")[0] + b",p=" + proof)


def test_a_final_message_is_not_accepted_in_another_exchange() -> None:
    _, client_final = exchange_until_final(ScramClientExchange(SHA_256, "user", "pencil", "client"))
    server = ScramServerExchange(SHA_256, "another-nonce")
    server.read_first(b"n,,n=user,r=client")
    server.first_message(CREDENTIAL)
    with pytest.raises(ScramError, match="nonce"):
        server.final_message(client_final)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"r=client,s=QUFB,i=4096",
        b"r=other-nonce,s=QUFB,i=4096",
        b"r=client-s,s=QUFB,i=4095",
        b"r=client-s,s=QUFB,i=999999999",
        b"r=client-s,s=QUFB,i=99999999999999",
        b"r=client-s,s=QUFB,i=-4096",
        b"r=client-s,s=Q,i=4096",
        b"m=x,r=client-s,s=QUFB,i=4096",
        b"r=client-s,s=QUFB",
        b"e=other-error",
    ],
)
def test_a_client_refuses_a_hostile_first_message(message: bytes) -> None:
    with pytest.raises(ScramError):
        ScramClientExchange(SHA_256, "user", "pencil", "client").final_message(message)


def test_a_client_refuses_a_server_without_the_credential() -> None:
    client = ScramClientExchange(SHA_256, "user", "pencil", "client")
    with pytest.raises(ScramError, match="did not prove"):
        client.verify(b"v=" + b64encode(bytes(32)))
    exchange_until_final(client)
    with pytest.raises(ScramError, match="did not prove"):
        client.verify(b"v=" + b64encode(bytes(32)))
    with pytest.raises(ScramError, match="refuses: unknown-user"):
        client.verify(b"e=unknown-user")
