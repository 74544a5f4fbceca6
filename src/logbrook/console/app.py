"""The console's process: composes pages, API, sampler and access control, and serves them until a signal."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import uvicorn
import uvloop
from fastapi import FastAPI
from nicegui import ui

from logbrook.client.security import PLAINTEXT_SECURITY, ClientSecurity
from logbrook.console.api import create_api
from logbrook.console.gates import LoginGate, OpenGate, TokenGate
from logbrook.console.guard import Gate, Guard
from logbrook.console.oidc import OidcOptions, OidcSignIn
from logbrook.console.pages import add_pages
from logbrook.console.pages.layout import ICON, ConsoleContext
from logbrook.console.sampling import INTERVAL_S
from logbrook.console.schema_values import SchemaValues, registry_fetch
from logbrook.console.sign_in import SESSION_S, SignIn, pause
from logbrook.console.workspace import CurrentAccess, Workspace, WorkspaceOptions
from logbrook.pipelines.report import REPORTS_TOPIC

_STOP_S = 2
_SWEEP_S = 5.0


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """Options of the process.

    `metrics` is HOST:PORT of a Logbrook broker's metrics. With `with_parent` the process stops when standard input
    ends, which happens when the broker that started it exits. `reports` is the topic of pipeline reports,
    `schema_registry` the URL of a registry for values with a schema, and `security` that of the connections to the
    cluster. With `has_login`, users sign in with their own credentials instead of those in `security`, for `session_s`.
    `url` is the address by which browsers reach the console, `certificate` and `key` are PEM files for HTTPS. `oidc` is
    for single sign-on, in addition to passwords.
    """

    bootstrap_servers: str
    host: str
    port: int
    token: str | None = None
    metrics: str | None = None
    is_metrics_guessed: bool = False
    with_parent: bool = False
    interval_s: float = INTERVAL_S
    reports: str = REPORTS_TOPIC
    schema_registry: str | None = None
    security: ClientSecurity = PLAINTEXT_SECURITY
    has_login: bool = False
    session_s: float = SESSION_S
    url: str | None = None
    certificate: str | None = None
    key: str | None = None
    oidc: OidcOptions | None = None

    @property
    def is_secure(self) -> bool:
        """True if browsers reach the console with HTTPS, by itself or by a proxy."""
        return self.certificate is not None or (self.url or "").startswith("https:")

    @property
    def hosts(self) -> list[str]:
        """The names that the console is known by, with ports as browsers send them."""
        listen = f"{self.host}:{self.port}"
        return [listen, urlsplit(self.url).netloc] if self.url else [listen]


def run_console(options: ConsoleOptions, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; calls `announce` with the URL. Raises OSError if it cannot listen."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    with socket.create_server((options.host, options.port), family=family) as listener:
        uvloop.run(_serve(options, listener, announce))


def create_app(options: ConsoleOptions, stopping: asyncio.Event) -> FastAPI:
    """Compose the application. Pages are registered globally with nicegui, so a process can have only one."""
    metrics = options.metrics
    workspaces = WorkspaceOptions(
        options.bootstrap_servers,
        f"http://{metrics}/metrics" if metrics and "://" not in metrics else metrics,
        options.is_metrics_guessed,
        options.interval_s,
        options.reports,
    )
    sign_in: SignIn | None = None
    workspace: Workspace | None = None
    gate: Gate
    if options.has_login:
        sign_in = SignIn(workspaces, options.security, session_s=options.session_s)
        gate = LoginGate(sign_in, options.bootstrap_servers, is_secure=options.is_secure)
        if options.oidc is not None:
            gate.single_sign_on = OidcSignIn(options.oidc, gate).answer
    else:
        workspace = Workspace(workspaces, options.security)
        gate = OpenGate(workspace)
        if options.token is not None:
            gate = TokenGate(workspace, options.token, is_secure=options.is_secure)

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        sweeping = None if sign_in is None else asyncio.get_running_loop().create_task(_sweep(sign_in))
        if workspace is not None:
            # Charts begin before the first page is opened.
            workspace.start_sampling()
        yield
        if sweeping is not None:
            sweeping.cancel()
        for owned in (sign_in, workspace):
            if owned is not None:
                await owned.close()

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=running)
    app.mount("/api", create_api(CurrentAccess(), stopping))
    schemas = None if options.schema_registry is None else SchemaValues(registry_fetch(options.schema_registry))
    add_pages(ConsoleContext(schemas))
    ui.run_with(app, title="Logbrook", favicon=ICON, dark=None, language="en-US", show_welcome_message=False)
    app.add_middleware(Guard, gate=gate, hosts=options.hosts)
    return app


async def _sweep(sign_in: SignIn) -> None:
    """End sessions soon after they have expired, also those of pages that are only looked at."""
    while True:
        await pause(_SWEEP_S)
        await sign_in.sweep()


class _Server(uvicorn.Server):
    """Does not handle signals: uvicorn would raise them again on shutdown and so end the process."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def _serve(options: ConsoleOptions, listener: socket.socket, announce: Callable[[str], None]) -> None:
    stopping = asyncio.Event()
    app = create_app(options, stopping)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_STOP_S,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
        # Who is connected decides nothing here, and a header must not either.
        proxy_headers=False,
    )
    server = _Server(config)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopping.set()
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if options.with_parent:
        loop.add_reader(sys.stdin.fileno(), lambda: stop() if not os.read(sys.stdin.fileno(), 4096) else None)
    host, port = listener.getsockname()[:2]
    scheme = "http" if options.certificate is None else "https"
    announce(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}")
    await server.serve([listener])
    if options.with_parent:
        loop.remove_reader(sys.stdin.fileno())
