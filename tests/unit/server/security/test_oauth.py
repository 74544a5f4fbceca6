"""JSON web tokens: what is accepted, and what a forged, expired or malformed one is refused for."""

import asyncio
import hmac
import json
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwk, jws, jwt

from logbrook.config.security import SecurityConfig
from logbrook.model.security import Principal
from logbrook.server.security import token_keys
from logbrook.server.security.errors import AuthenticationFailedError
from logbrook.server.security.oauth import TokenVerifier
from logbrook.server.security.sasl import Authenticated
from logbrook.testing.clock import FakeClock
from tests.unit.server.security.token_kit import TokenIssuer

SKEW_S = 30


@pytest.fixture
def issuer(tmp_path: Path) -> TokenIssuer:
    return TokenIssuer(tmp_path / "keys.json")


class VerifierAtTime:
    """A verifier of the issuer's tokens whose clock is moved by the test."""

    def __init__(self, source: str, **settings: Any) -> None:
        self.clock = FakeClock()
        config = SecurityConfig(oauth_jwks=source, oauth_clock_skew_ms=SKEW_S * 1000, **settings)
        self.verifier = TokenVerifier(config, self.clock)

    def verify(self, *tokens: str) -> list[Authenticated | str]:
        """Verify tokens one after the other. Returns what each is verified as, or why it is refused."""

        async def verify() -> list[Authenticated | str]:
            results: list[Authenticated | str] = []
            for token in tokens:
                try:
                    results.append(await self.verifier.verify(token))
                except AuthenticationFailedError as error:
                    results.append(str(error))
            return results

        return asyncio.run(verify())

    @property
    def now_s(self) -> int:
        return self.clock.now_ms() // 1000


def verifier_of(issuer: TokenIssuer, **settings: Any) -> VerifierAtTime:
    return VerifierAtTime(str(issuer.path), **settings)


def refusal(verifier: VerifierAtTime, token: str) -> str:
    (result,) = verifier.verify(token)
    assert isinstance(result, str), result
    return result


def encoded(value: Any) -> str:
    return urlsafe_b64encode(value if isinstance(value, bytes) else json.dumps(value).encode()).rstrip(b"=").decode()


def test_a_valid_token_names_the_principal_and_the_end_of_its_session(issuer: TokenIssuer) -> None:
    verifier = verifier_of(issuer)
    exp = verifier.now_s + 60
    (result,) = verifier.verify(issuer.token("alice", exp=exp))
    assert result == Authenticated(Principal("User", "alice"), (exp + SKEW_S) * 1000)


def test_every_asymmetric_algorithm_is_accepted(tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "RS256": jwk.RSAKey.generate_key(2048, {"kid": "RS256"}),
        "ES384": jwk.ECKey.generate_key("P-384", {"kid": "ES384"}),
        "Ed25519": jwk.OKPKey.generate_key("Ed25519", {"kid": "Ed25519"}),
    }
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [key.as_dict(private=False) for key in keys.values()]}))
    verifier = VerifierAtTime(str(path))
    claims = {"sub": "alice", "exp": verifier.now_s + 60}
    tokens = [jwt.encode({"alg": alg, "kid": alg}, claims, key, algorithms=[alg]) for alg, key in keys.items()]
    assert all(isinstance(result, Authenticated) for result in verifier.verify(*tokens))


def test_a_token_without_a_signature_or_with_the_public_key_as_secret_is_refused(issuer: TokenIssuer) -> None:
    verifier = verifier_of(issuer)
    claims = {"sub": "admin", "exp": verifier.now_s + 60}
    unsigned = f"{encoded({'alg': 'none', 'kid': issuer.kid})}.{encoded(claims)}."
    assert "none" in refusal(verifier, unsigned)
    content = f"{encoded({'alg': 'HS256', 'kid': issuer.kid})}.{encoded(claims)}"
    for secret in (issuer.keys[issuer.kid].as_pem(private=False), issuer.published):
        signature = hmac.digest(secret, content.encode(), "sha256")
        assert "HS256" in refusal(verifier, f"{content}.{encoded(signature)}")


def test_a_secret_in_the_key_set_verifies_nothing(issuer: TokenIssuer) -> None:
    secret = {"kty": "oct", "kid": "shared", "k": encoded(b"s" * 32)}
    unusable = {"kty": "NEW", "kid": "of-the-future"}
    content = json.loads(issuer.published)
    issuer.path.write_text(json.dumps({"keys": [unusable, secret, *content["keys"]]}))
    verifier = verifier_of(issuer)
    claims = {"sub": "admin", "exp": verifier.now_s + 60}
    forged = jwt.encode({"alg": "HS256", "kid": "shared"}, claims, jwk.OctKey.import_key(secret), algorithms=["HS256"])
    refused, accepted = verifier.verify(forged, issuer.token(exp=verifier.now_s + 60))
    assert isinstance(refused, str)
    assert isinstance(accepted, Authenticated)


def test_a_changed_token_is_refused(issuer: TokenIssuer) -> None:
    verifier = verifier_of(issuer)
    header, _, signature = issuer.token(exp=verifier.now_s + 60).split(".")
    changed = encoded({"sub": "admin", "exp": verifier.now_s + 60})
    assert "bad_signature" in refusal(verifier, f"{header}.{changed}.{signature}")
    other = TokenIssuer(issuer.path.with_name("others.json"))
    assert "bad_signature" in refusal(verifier, other.token(exp=verifier.now_s + 60))


def test_time_is_checked_with_the_tolerated_skew(issuer: TokenIssuer) -> None:
    verifier = verifier_of(issuer)
    now_s = verifier.now_s
    tolerated = verifier.verify(
        issuer.token(exp=now_s - SKEW_S + 1),
        issuer.token(exp=now_s + 60, nbf=now_s + SKEW_S),
        issuer.token(exp=now_s + 60.5, iat=now_s + SKEW_S),
    )
    assert all(isinstance(result, Authenticated) for result in tolerated), tolerated
    assert refusal(verifier, issuer.token(exp=now_s - SKEW_S)) == "the token has expired"
    assert "nbf" in refusal(verifier, issuer.token(exp=now_s + 60, nbf=now_s + SKEW_S + 1))
    assert "iat" in refusal(verifier, issuer.token(exp=now_s + 60, iat=now_s + SKEW_S + 1))
    assert "no expiry" in refusal(verifier, issuer.token(exp=None))
    for wrong in (True, "9999999999", [], 1e300, -1e300):
        assert "is not a time" in refusal(verifier, issuer.token(exp=wrong))


def test_the_issuer_and_one_of_the_audiences_must_match(issuer: TokenIssuer) -> None:
    verifier = verifier_of(issuer, oauth_issuer="https://id", oauth_audience="kafka, logbrook")
    claims = {"exp": verifier.now_s + 60, "iss": "https://id"}
    for audience in ("kafka", ["other", "logbrook"]):
        (result,) = verifier.verify(issuer.token(**claims, aud=audience))
        assert isinstance(result, Authenticated)
    for audience in (None, "other", [], ["kafka2"], {"kafka": 1}, 5, [["kafka"]], "kafka, logbrook"):
        assert "audience" in refusal(verifier, issuer.token(**claims, aud=audience))
    for wrong in (None, "https://id/", ["https://id"], 1):
        assert "issued by" in refusal(verifier, issuer.token(**{**claims, "iss": wrong}, aud="kafka"))


def test_the_principal_is_a_claim_that_is_text(issuer: TokenIssuer) -> None:
    verifier = verifier_of(issuer, oauth_principal_claim="client_id")
    exp = verifier.now_s + 60
    (result,) = verifier.verify(issuer.token(exp=exp, client_id="service"))
    assert isinstance(result, Authenticated)
    assert result.principal == Principal("User", "service")
    for wrong in (None, "", 5, ["service"], {}):
        assert "client_id" in refusal(verifier, issuer.token(exp=exp, client_id=wrong))


def test_malformed_tokens_are_refused_whatever_they_hold(issuer: TokenIssuer) -> None:
    verifier = verifier_of(issuer)
    header = {"alg": "ES256", "kid": issuer.kid}
    headers: list[Any] = [
        [],
        None,
        1,
        {},
        {"alg": 1},
        {**header, "kid": {}},
        {**header, "crit": 5},
        {**header, "typ": 1},
    ]
    headers += [{**header, "crit": ["x"]}, {"alg": "RSA-OAEP", "enc": "A128GCM"}, {**header, "zip": "DEF"}]
    nested = [encoded(b"[" * size) for size in (100, 8_000)]
    tokens = ["", ".", "..", "a.b.c", "a.b.c.d.e", "é.é.é", "\ud800.a.b", *[f"{text}.e30.AAAA" for text in nested]]
    tokens += [f"{encoded(each)}.{encoded({})}.{signature}" for each in headers for signature in ("", "!!", "AAAA")]
    tokens += [issuer.token(**{str(n): "x" * 100 for n in range(200)}), "x" * 1_000_000]
    assert all(isinstance(result, str) for result in verifier.verify(*tokens))


def test_deeply_nested_claims_of_a_trusted_issuer_are_refused(issuer: TokenIssuer) -> None:
    header = {"alg": "ES256", "kid": issuer.kid}
    token = jws.serialize_compact(header, b"[" * 5_000, issuer.keys[issuer.kid], algorithms=["ES256"])
    assert "malformed" in refusal(verifier_of(issuer), token)


def test_a_token_with_a_new_key_makes_the_file_read_again(issuer: TokenIssuer) -> None:
    verifier = verifier_of(issuer)
    exp = verifier.now_s + 10_000
    old = issuer.token(exp=exp)
    assert isinstance(verifier.verify(old)[0], Authenticated)
    issuer.add_key("key-2")
    new = issuer.token(exp=exp)
    # The file was read just now: tokens with unknown keys must not make the broker read it all the time.
    assert "key-2" in refusal(verifier, new)
    verifier.clock.advance(10_000)
    assert all(isinstance(result, Authenticated) for result in verifier.verify(new, old))


def test_a_key_that_is_removed_from_the_file_is_not_trusted_for_long(issuer: TokenIssuer) -> None:
    verifier = verifier_of(issuer)
    old = issuer.token(exp=verifier.now_s + 10_000)
    issuer.add_key("key-2")
    assert isinstance(verifier.verify(old)[0], Authenticated)
    issuer.remove_key("key-1")
    verifier.clock.advance(10_000)
    assert "key-1" in refusal(verifier, old)


def test_keys_stay_in_use_while_the_file_is_missing_or_broken(issuer: TokenIssuer) -> None:
    verifier = verifier_of(issuer)
    token = issuer.token(exp=verifier.now_s + 100_000)
    assert isinstance(verifier.verify(token)[0], Authenticated)
    for content in (b"", b"{}", b"[]", b'{"keys": 5}', b'{"keys": [5]}', b'{"keys": []}', b"\xff"):
        issuer.path.write_bytes(content)
        verifier.clock.advance(3_600_000)
        assert isinstance(verifier.verify(token)[0], Authenticated)
    issuer.path.unlink()
    verifier.clock.advance(3_600_000)
    assert isinstance(verifier.verify(token)[0], Authenticated)


def test_without_keys_tokens_are_refused_until_there_are_some(issuer: TokenIssuer) -> None:
    content = issuer.path.read_bytes()
    issuer.path.unlink()
    verifier = verifier_of(issuer)
    token = issuer.token(exp=verifier.now_s + 60)
    assert "cannot be read" in refusal(verifier, token)
    issuer.path.write_bytes(content)
    assert "cannot be read" in refusal(verifier, token)
    verifier.clock.advance(1_000)
    assert isinstance(verifier.verify(token)[0], Authenticated)


class KeyServer:
    """An identity provider whose answers the test chooses."""

    def __init__(self) -> None:
        self.answer = b""
        self.requests = 0
        # Cleared: requests wait.
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.url = ""


@contextmanager
def key_server() -> Iterator[KeyServer]:
    state = KeyServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests += 1
            state.may_answer.wait(30)
            self.wfile.write(state.answer)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_port}/keys"
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield state
        finally:
            state.may_answer.set()
            server.shutdown()
            serving.join()


def test_keys_are_fetched_once_for_all_who_wait_and_errors_of_http_are_no_bugs(issuer: TokenIssuer) -> None:
    with key_server() as server:
        verifier = VerifierAtTime(server.url)
        token = issuer.token(exp=verifier.now_s + 100_000)
        # Neither is an OSError.
        for answer in (b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"):
            server.answer = answer
            assert "cannot be read" in refusal(verifier, token)
            verifier.clock.advance(1_000)
        server.answer = b"HTTP/1.1 200 OK\r\n\r\n" + issuer.published
        server.requests = 0

        async def verify_many() -> list[Authenticated]:
            return await asyncio.gather(*(verifier.verifier.verify(token) for _ in range(50)))

        assert len(asyncio.run(verify_many())) == 50
        assert server.requests == 1


def test_a_provider_that_does_not_answer_keeps_nobody_out(issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_keys, "_PATIENCE_S", 0.01)
    with key_server() as server:
        server.answer = b"HTTP/1.1 200 OK\r\n\r\n" + issuer.published
        verifier = VerifierAtTime(server.url)
        token = issuer.token(exp=verifier.now_s + 100_000)

        async def verify() -> None:
            await verifier.verifier.verify(token)
            verifier.clock.advance(3_600_000)
            server.may_answer.clear()
            await asyncio.gather(*(verifier.verifier.verify(token) for _ in range(20)))
            assert server.requests == 2
            # A token with an unknown key waits for the keys, and those with a known one do not wait for it.
            issuer.add_key("key-2")
            server.answer = b"HTTP/1.1 200 OK\r\n\r\n" + issuer.published
            waiting = asyncio.create_task(verifier.verifier.verify(issuer.token(exp=verifier.now_s + 60)))
            await verifier.verifier.verify(token)
            assert not waiting.done()
            server.may_answer.set()
            assert (await waiting).principal.name == "alice"

        asyncio.run(verify())
