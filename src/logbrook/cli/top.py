"""`logbrook top`: what a cluster does, now."""

import json
import os
import re
import select
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

import typer

from logbrook.cli.connection import Bootstrap, administered, bootstrap_servers
from logbrook.cli.failures import refuse, sentence_of
from logbrook.cli.paragraphs import ParagraphCommand
from logbrook.cli.top_metrics import DEFAULT_PORT
from logbrook.cli.top_sampling import Sampler, View
from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.model import LogbrookError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

# Whoever looks at a screen would rather hear soon that nobody answers.
_CONNECT_S = 1.0
_ANSWER_S = 3.0
# A key is answered within this time.
_KEY_S = 0.1
_KEY = re.compile(rb"\x1b[\[O][A-Z]|.", re.DOTALL)
_KEYS = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down", b"k": "up", b"j": "down"}


@app.command(cls=ParagraphCommand)
def top(
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, metavar="SECONDS", help="From one look to the next.")
    ] = 1.0,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="URL",
            help=f"The broker's metrics, for what goes out; else port {DEFAULT_PORT} of the cluster is tried.",
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print one table: two looks, and what happened between.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line for each look.")] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show what a cluster does: throughput, topics, partitions, sizes, groups and their lag.

    Keys: q quits, s or 1 to 8 sort by a column, r reverses, p pauses, i shows internal topics, the arrows scroll. A
    broker that goes away is waited for.

    JSON: {"time", "cluster_id", "brokers", "metrics", "error", "topics", "groups", "disks"}, with a list of {"topic",
    "internal", "partitions", "records", "size_bytes", "in_records_per_s", "in_bytes_per_s", "out_records_per_s",
    "out_bytes_per_s"}, a list of {"group", "state", "topics", "lag", "read_per_s"} and a list of {"broker", "path",
    "total_bytes", "usable_bytes"}; what is not known is null.
    """
    if not once and not as_json and not (sys.stdin.isatty() and sys.stdout.isatty()):
        refuse("--once", "there is no terminal to draw on; --once prints one table, --json a line for each look")
    with administered(bootstrap) as admin:
        servers = bootstrap_servers(bootstrap, os.environ)
        if once:
            _print_once(_sampler(admin, servers, metrics), interval, servers, as_json)
            return
        with _Watch(servers, metrics, interval) as watch:
            if as_json:
                _stream(watch)
            else:
                _draw(watch, servers)


class _Watch:
    """Looks at a cluster again and again, in a thread of its own, so that keys are answered while a broker is not."""

    def __init__(self, servers: str, metrics: str | None, interval_s: float) -> None:
        self.view = View()
        self._changed = threading.Condition()
        self._looks = 0
        self._servers = servers
        self._metrics = metrics
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="logbrook-top", daemon=True)

    def __enter__(self) -> "_Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        # It is not worth waiting for a broker that does not answer.
        self._thread.join(_KEY_S)

    def views(self) -> Iterator[View]:
        """Each as it comes, without end; those that come while nobody asks are passed over."""
        looks = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda seen=looks: self._looks > seen)  # type: ignore[misc]
                looks, view = self._looks, self.view
            yield view

    def _run(self) -> None:
        with Client(
            self._servers, client_id="logbrook-top", timeout_s=_ANSWER_S, connect_timeout_s=_CONNECT_S
        ) as client:
            sampler = _sampler(Admin(client), self._servers, self._metrics)
            while not self._stopping.is_set():
                try:
                    view = sampler.look()
                except LogbrookError as error:
                    view = replace(self.view, error=sentence_of(error).partition(";")[0])
                except Exception as error:
                    # The screen must not stand still without a word.
                    view = replace(self.view, error=f"a bug in top: {error!r}")
                with self._changed:
                    self.view = view
                    self._looks += 1
                    self._changed.notify_all()
                self._stopping.wait(self._interval_s)


def _sampler(admin: Admin, servers: str, metrics: str | None) -> Sampler:
    host = servers.partition(",")[0].rpartition(":")[0]
    url = f"http://{host}:{DEFAULT_PORT}" if metrics is None else metrics
    return Sampler(admin, url or None, is_guessed=metrics is None)


def _print_once(sampler: Sampler, interval_s: float, servers: str, as_json: bool) -> None:
    from logbrook.cli.top_screen import print_once  # noqa: PLC0415 - Rich takes its time, and JSON has no use for it

    sampler.look()
    threading.Event().wait(interval_s)
    view = sampler.look()
    if as_json:
        typer.echo(json.dumps(view.form()))
    else:
        print_once(view, servers)


def _stream(watch: _Watch) -> None:
    for view in watch.views():
        # The first look has nothing to compare with.
        if view.has_rates or view.error:
            typer.echo(json.dumps(view.form()))
            sys.stdout.flush()


def _draw(watch: _Watch, servers: str) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    from logbrook.cli.top_screen import Choices, screen  # noqa: PLC0415

    console = Console(highlight=False)
    choices, shown, drawn = Choices(), View(), None
    with _keys_unbuffered(), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            shown = shown if choices.is_paused else watch.view
            wanted = (shown, choices, console.size)
            if wanted != drawn:
                live.update(screen(shown, choices, servers, console.width, console.height), refresh=True)
                drawn = wanted
            for key in _pressed(_KEY_S):
                if key == "q":
                    return
                choices = choices.after(key)


def _pressed(timeout_s: float) -> Iterator[str]:
    """The keys that were pressed, once there is one or the time is up."""
    descriptor = sys.stdin.fileno()
    if not select.select([descriptor], [], [], timeout_s)[0]:
        return
    data = os.read(descriptor, 64)
    if not data:
        # The terminal is gone.
        yield "q"
        return
    for one in _KEY.findall(data):
        yield _KEYS.get(one) or one.decode("ascii", "replace").lower()


@contextmanager
def _keys_unbuffered() -> Iterator[None]:
    """Keys come one by one and are not echoed, and the terminal is left as it was."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
