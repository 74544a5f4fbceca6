"""The console's process: the pages and the API behind one listener, from start to the signal that stops it."""

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

from logbrook.console.api import make_api
from logbrook.console.cluster import ClusterAccess
from logbrook.console.guard import Guard
from logbrook.console.pages import add_pages
from logbrook.console.pages.layout import ICON, Console
from logbrook.console.pipelines import Pipelines
from logbrook.console.sampling import INTERVAL_S, Sampler
from logbrook.pipelines.report import REPORTS_TOPIC

_STOP_S = 2


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """`metrics` is HOST:PORT of a Logbrook broker's metrics; `with_parent` stops when standard input ends; `reports` is
    the topic in which pipelines say how they are."""

    bootstrap_servers: str
    host: str
    port: int
    token: str | None = None
    metrics: str | None = None
    with_parent: bool = False
    interval_s: float = INTERVAL_S
    reports: str = REPORTS_TOPIC


def run_console(options: ConsoleOptions, announce: Callable[[str], None]) -> None:
    """Serve until a signal comes. `announce` is told the address. Raises OSError."""
    access = ClusterAccess(options.bootstrap_servers)
    try:
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        with socket.create_server((options.host, options.port), family=family) as listener:
            uvloop.run(_serve(options, access, listener, announce))
    finally:
        access.close()


def make_app(options: ConsoleOptions, access: ClusterAccess) -> FastAPI:
    """All of it as one application. Its pages are registered with nicegui, so there is one in a process."""
    url = None if options.metrics is None else f"http://{options.metrics}/metrics"
    pipelines = Pipelines(access, options.reports)
    sampler = Sampler(access, url, options.interval_s, pipelines)

    @asynccontextmanager
    async def sampling(_: FastAPI) -> AsyncIterator[None]:
        sampler.start()
        yield
        await sampler.stop()

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=sampling)
    app.mount("/api", make_api(access, pipelines))
    add_pages(Console(access, sampler))
    ui.run_with(app, title="Logbrook", favicon=ICON, dark=None, show_welcome_message=False)
    app.add_middleware(Guard, token=options.token)
    return app


class _Server(uvicorn.Server):
    """Leaves the signals to us: uvicorn would raise them once more at the end, and the process would die of them."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def _serve(
    options: ConsoleOptions, access: ClusterAccess, listener: socket.socket, announce: Callable[[str], None]
) -> None:
    app = make_app(options, access)
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=_STOP_S)
    server = _Server(config)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        server.should_exit = True

    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, stop)
    if options.with_parent:
        loop.add_reader(sys.stdin.fileno(), lambda: stop() if not os.read(sys.stdin.fileno(), 4096) else None)
    host, port = listener.getsockname()[:2]
    announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")
    await server.serve([listener])
    if options.with_parent:
        loop.remove_reader(sys.stdin.fileno())
