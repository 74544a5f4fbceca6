"""Sign-in with OpenID Connect, against a provider on a socket and a broker that accepts its tokens."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from logbrook.client.sasl_options import SaslOptions
from logbrook.client.security import ClientSecurity
from logbrook.console.gates import LoginGate
from logbrook.console.guard import Guard
from logbrook.console.oidc import OidcFailedError, OidcOptions, OidcSignIn
from logbrook.console.sign_in import SignIn
from logbrook.console.workspace import WorkspaceOptions, current_session
from logbrook.model.security import SaslMechanism, SecurityProtocol
from tests.console.oidc_provider import CLIENT_ID, CLIENT_SECRET, OidcProvider
from tests.security_kit import security_settings
from tests.unit.server.http_kit import Served

URL = "https://console.example"


class FakeTime:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcProvider]:
    with OidcProvider(tmp_path_factory.mktemp("provider")) as started:
        yield started


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, provider: OidcProvider) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("secured")
    security = security_settings(
        folder,
        protocol="SASL_PLAINTEXT",
        sasl_mechanisms=["SCRAM-SHA-256", "OAUTHBEARER"],
        oauth_jwks=str(provider.tokens.jwks),
        oauth_issuer=provider.url,
    )
    with Served(folder / "data", {"security": security}) as served:
        yield served


def run(
    served: Served,
    provider: OidcProvider,
    scenario: Callable[[httpx.AsyncClient, FakeTime], Coroutine[Any, Any, None]],
) -> None:
    async def call() -> None:
        security = ClientSecurity(
            SecurityProtocol.SASL_PLAINTEXT, sasl=SaslOptions(SaslMechanism.SCRAM_SHA_256, "user", "password")
        )
        now_s = FakeTime()
        sign_in = SignIn(WorkspaceOptions(served.bootstrap_servers), security, now_s=now_s, failed_delay_s=0.0)
        gate = LoginGate(sign_in, "the cluster", is_secure=True)
        options = OidcOptions(provider.url, CLIENT_ID, URL, CLIENT_SECRET)
        gate.single_sign_on = OidcSignIn(options, gate, now_s=now_s).answer
        app = Starlette(routes=[Route("/", lambda _: PlainTextResponse(current_session().user))])
        guard = Guard(app, gate=gate, hosts=["console.example"])
        try:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url=URL) as browser:
                await scenario(browser, now_s)
        finally:
            await sign_in.close()

    # While playwright runs, the event loop of this thread does too.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, call()).result(60)


async def back_from_provider(browser: httpx.AsyncClient, provider: OidcProvider) -> str:
    """Begin a flow, and return the address that the provider sends the browser to."""
    started = await browser.get("/oidc/start?next=/topics")
    assert started.status_code == 303
    cookie = started.headers["set-cookie"].lower()
    assert all(word in cookie for word in ("httponly", "samesite=lax", "secure", "path=/oidc"))
    return provider.authorize(started.headers["location"])


def test_a_user_of_the_provider_signs_in_until_the_token_ends(secured: Served, provider: OidcProvider) -> None:
    async def scenario(browser: httpx.AsyncClient, now_s: FakeTime) -> None:
        assert "Single sign-on" in (await browser.get("/login")).text
        signed_in = await browser.get(await back_from_provider(browser, provider))
        assert signed_in.status_code == 200
        # A page of the console's own goes on: a redirect would not have the cookie with SameSite=Strict.
        assert 'http-equiv="refresh" content="0;url=/topics"' in signed_in.text
        cookies = [cookie.lower() for cookie in signed_in.headers.get_list("set-cookie")]
        assert any("logbrook_session" in cookie and "samesite=strict" in cookie for cookie in cookies)
        assert (await browser.get("/")).text == "alice"
        now_s.now_s = 60.0
        assert (await browser.get("/")).status_code == 303

    run(secured, provider, scenario)


def test_a_flow_is_of_one_browser_and_used_once(secured: Served, provider: OidcProvider) -> None:
    async def scenario(browser: httpx.AsyncClient, now_s: FakeTime) -> None:
        callback = await back_from_provider(browser, provider)
        stolen = dict(browser.cookies)
        browser.cookies.clear()
        assert (await browser.get(callback)).status_code == 401
        browser.cookies.update(stolen)
        wrong_state = callback.replace("state=", "state=x")
        assert (await browser.get(wrong_state)).status_code == 401
        assert (await browser.get(callback)).status_code == 401
        late = await back_from_provider(browser, provider)
        now_s.now_s = 601.0
        assert (await browser.get(late)).status_code == 401
        other_issuer = (await back_from_provider(browser, provider)).partition("&iss=")[0] + "&iss=https://evil.example"
        assert (await browser.get(other_issuer)).status_code == 401
        assert (await browser.get("/")).status_code == 303
        assert (await browser.get("/oidc/other")).status_code == 404

    run(secured, provider, scenario)


@pytest.mark.parametrize(
    "changes",
    [
        {"nonce": "of another flow"},
        {"aud": "another client"},
        {"azp": "another client"},
        {"iss": "https://evil.example"},
        {"exp": 1},
    ],
)
def test_an_id_token_for_something_else_is_refused(
    secured: Served, provider: OidcProvider, changes: dict[str, Any]
) -> None:
    async def scenario(browser: httpx.AsyncClient, _: FakeTime) -> None:
        provider.changes = changes
        try:
            refused = await browser.get(await back_from_provider(browser, provider))
        finally:
            provider.changes = {}
        assert refused.status_code == 401
        assert "Single sign-on failed" in refused.text
        assert (await browser.get("/")).status_code == 303

    run(secured, provider, scenario)


def test_the_provider_must_use_https() -> None:
    options = OidcOptions("http://issuer.example", CLIENT_ID, URL, CLIENT_SECRET)
    assert CLIENT_SECRET not in repr(options)
    assert urlsplit(options.issuer).scheme == "http"
    with pytest.raises(OidcFailedError, match="https"):
        OidcSignIn(options, None)  # type: ignore[arg-type]
