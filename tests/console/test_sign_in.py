"""Sessions of users who sign in: verified by a real broker, ended by time, by signing out and by the stop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from logbrook.client.sasl_options import SaslOptions
from logbrook.client.security import ClientSecurity
from logbrook.console.login_page import safe_target
from logbrook.console.sign_in import Credentials, SignIn, SignInRefusedError
from logbrook.console.workspace import (
    ConsoleSession,
    CurrentAccess,
    SessionEndedError,
    Workspace,
    WorkspaceOptions,
    serving,
)
from logbrook.core.acls import AclOperation, ResourceType
from logbrook.model.security import SaslMechanism, SecurityProtocol
from tests.security_kit import PASSWORDS, TokenIssuer, allow, security_settings
from tests.unit.server.http_kit import Served

BOB = Credentials("bob", PASSWORDS["bob"])
ALICE = Credentials("alice", PASSWORDS["alice"])


class FakeTime:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> TokenIssuer:
    return TokenIssuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, issuer: TokenIssuer) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("secured")
    security = security_settings(
        folder,
        protocol="SASL_PLAINTEXT",
        sasl_mechanisms=["SCRAM-SHA-256", "OAUTHBEARER"],
        oauth_jwks=str(issuer.jwks),
    )
    with Served(folder / "data", {"security": security}) as served:
        for topic in ("orders", "payments"):
            served.create_topic(topic)
        served.call(allow(served.broker.services, "alice", AclOperation.READ, ResourceType.TOPIC, "orders"))
        yield served


@asynccontextmanager
async def signing_in(served: Served, now_s: Callable[[], float]) -> AsyncIterator[SignIn]:
    security = ClientSecurity(
        SecurityProtocol.SASL_PLAINTEXT, sasl=SaslOptions(SaslMechanism.SCRAM_SHA_256, "user", "password")
    )
    sign_in = SignIn(
        WorkspaceOptions(served.bootstrap_servers), security, session_s=60.0, now_s=now_s, failed_delay_s=0.0
    )
    try:
        yield sign_in
    finally:
        await sign_in.close()


def run(served: Served, scenario: Callable[[SignIn, FakeTime], Coroutine[Any, Any, None]]) -> None:
    async def call() -> None:
        now_s = FakeTime()
        async with signing_in(served, now_s) as sign_in:
            await scenario(sign_in, now_s)

    # While playwright runs, the event loop of this thread does too.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, call()).result(60)


async def topics_of(session: ConsoleSession | None) -> list[str]:
    assert session is not None
    with serving(session):
        return [topic.name for topic in await CurrentAccess().ask(lambda admin: admin.topics.all())]


def test_users_see_what_the_acls_of_the_cluster_allow(secured: Served) -> None:
    async def scenario(sign_in: SignIn, _: FakeTime) -> None:
        alice = sign_in.session(await sign_in.sign_in(ALICE, "127.0.0.1"))
        bob = sign_in.session(await sign_in.sign_in(BOB, "127.0.0.1"))
        assert await topics_of(alice) == ["orders"]
        assert await topics_of(bob) == []

    run(secured, scenario)


@pytest.mark.parametrize(
    "credentials",
    [Credentials("alice", "wrong"), Credentials("nobody", "wonderland"), Credentials(""), Credentials("", token="x")],
)
def test_wrong_credentials_begin_no_session(secured: Served, credentials: Credentials) -> None:
    async def scenario(sign_in: SignIn, _: FakeTime) -> None:
        with pytest.raises(SignInRefusedError):
            await sign_in.sign_in(credentials, "127.0.0.1")
        with pytest.raises(SignInRefusedError):
            await sign_in.request_session(credentials, "127.0.0.1")

    run(secured, scenario)


def test_a_session_ends_with_its_time(secured: Served) -> None:
    async def scenario(sign_in: SignIn, now_s: FakeTime) -> None:
        session_id = await sign_in.sign_in(ALICE, "127.0.0.1")
        session = sign_in.session(session_id)
        assert session is not None
        now_s.now_s = 59.9
        assert sign_in.session(session_id) is session
        now_s.now_s = 60.0
        assert sign_in.session(session_id) is None
        await sign_in.sweep()
        assert session.is_ended
        with pytest.raises(SessionEndedError):
            await topics_of(session)

    run(secured, scenario)


def test_signing_out_ends_one_session_and_the_last_one_ends_the_connections(secured: Served) -> None:
    async def scenario(sign_in: SignIn, _: FakeTime) -> None:
        first, second = [await sign_in.sign_in(ALICE, "127.0.0.1") for _ in range(2)]
        session = sign_in.session(second)
        assert session is not None
        workspace: Workspace = session.workspace
        await sign_in.sign_out(first)
        assert sign_in.session(first) is None
        assert await topics_of(session) == ["orders"]
        await sign_in.sign_out(second)
        await sign_in.sign_out(second)
        assert workspace.sessions == 0
        assert session.is_ended

    run(secured, scenario)


def test_a_session_id_is_not_kept_and_not_guessable(secured: Served) -> None:
    async def scenario(sign_in: SignIn, _: FakeTime) -> None:
        ids = [await sign_in.sign_in(ALICE, "127.0.0.1") for _ in range(2)]
        assert len(set(ids)) == 2
        assert all(len(session_id) >= 43 for session_id in ids)
        kept = repr(vars(sign_in))
        assert not any(session_id in kept for session_id in ids)
        assert PASSWORDS["alice"] not in kept

    run(secured, scenario)


def test_a_token_signs_in_and_limits_the_session(secured: Served, issuer: TokenIssuer) -> None:
    async def scenario(sign_in: SignIn, now_s: FakeTime) -> None:
        credentials = Credentials("alice", token=issuer.token("alice"))
        session_id = await sign_in.sign_in(credentials, "127.0.0.1", lifetime_s=10.0)
        assert await topics_of(sign_in.session(session_id)) == ["orders"]
        now_s.now_s = 10.0
        assert sign_in.session(session_id) is None

    run(secured, scenario)


def test_a_script_is_verified_again_after_a_while(secured: Served) -> None:
    async def scenario(sign_in: SignIn, now_s: FakeTime) -> None:
        first = await sign_in.request_session(ALICE, "127.0.0.1")
        again = await sign_in.request_session(ALICE, "127.0.0.1")
        assert again.workspace is first.workspace
        now_s.now_s = 300.0
        await sign_in.sweep()
        later = await sign_in.request_session(ALICE, "127.0.0.1")
        assert later.workspace is not first.workspace

    run(secured, scenario)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("/topics/orders?from=end", "/topics/orders?from=end"),
        ("", "/"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/login?next=/", "/"),
        ("/a\nb", "/"),
        ("//[", "/"),
    ],
)
def test_after_a_login_the_browser_stays_on_the_site(text: str, target: str) -> None:
    assert safe_target(text) == target
