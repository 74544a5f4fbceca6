"""The console's process: composes pages, API, sampler and access control, and serves them until a signal."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import uvicorn
import uvloop
from fastapi import FastAPI
from nicegui import ui

from logbrook.client.security import PLAINTEXT_SECURITY, ClientSecurity
from logbrook.console.api import create_api
from logbrook.console.cluster import ClusterAccess
from logbrook.console.guard import Guard
from logbrook.console.pages import add_pages
from logbrook.console.pages.layout import ICON, ConsoleContext
from logbrook.console.sampling import INTERVAL_S, ConsoleSampler, PipelineReports
from logbrook.console.schema_values import SchemaValues, registry_fetch
from logbrook.pipelines.report import REPORTS_TOPIC

_STOP_S = 2


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """Options of the process.

    `metrics` is HOST:PORT of a Logbrook broker's metrics. With `with_parent` the process stops when standard input
    ends, which happens when the broker that started it exits. `reports` is the topic of pipeline reports,
    `schema_registry` the URL of a registry for values with a schema, and `security` that of the connections to the
    cluster.
    """

    bootstrap_servers: str
    host: str
    port: int
    token: str | None = None
    metrics: str | None = None
    with_parent: bool = False
    interval_s: float = INTERVAL_S
    reports: str = REPORTS_TOPIC
    schema_registry: str | None = None
    security: ClientSecurity = PLAINTEXT_SECURITY


def run_console(options: ConsoleOptions, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; calls `announce` with the URL. Raises OSError if it cannot listen."""
    access = ClusterAccess(options.bootstrap_servers, options.security)
    try:
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        with socket.create_server((options.host, options.port), family=family) as listener:
            uvloop.run(_serve(options, access, listener, announce))
    finally:
        access.close()


def create_app(options: ConsoleOptions, access: ClusterAccess, stopping: asyncio.Event) -> FastAPI:
    """Compose the application. Pages are registered globally with nicegui, so a process can have only one."""
    url = None if options.metrics is None else f"http://{options.metrics}/metrics"
    pipelines = PipelineReports(access, options.reports)
    sampler = ConsoleSampler(access, url, options.interval_s, pipelines)

    @asynccontextmanager
    async def sampling(_: FastAPI) -> AsyncIterator[None]:
        sampler.start()
        yield
        await sampler.stop()

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=sampling)
    app.mount("/api", create_api(access, pipelines, stopping))
    schemas = None if options.schema_registry is None else SchemaValues(registry_fetch(options.schema_registry))
    add_pages(ConsoleContext(access, sampler, schemas))
    ui.run_with(app, title="Logbrook", favicon=ICON, dark=None, language="en-US", show_welcome_message=False)
    app.add_middleware(Guard, token=options.token)
    return app


class _Server(uvicorn.Server):
    """Does not handle signals: uvicorn would raise them again on shutdown and so end the process."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def _serve(
    options: ConsoleOptions, access: ClusterAccess, listener: socket.socket, announce: Callable[[str], None]
) -> None:
    stopping = asyncio.Event()
    app = create_app(options, access, stopping)
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=_STOP_S)
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
    announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")
    await server.serve([listener])
    if options.with_parent:
        loop.remove_reader(sys.stdin.fileno())
