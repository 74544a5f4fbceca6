"""`logbrook top`: live view of a cluster, on a terminal, as one table, or as JSON lines.

A `_Watcher` thread samples the cluster (`logbrook.monitoring`) and publishes each result as a `TopView`. The main
thread draws it (`top_screen`) and handles keys, so that keys respond while a broker does not.
"""

import json
import os
import re
import select
import sys
import termios
import threading
import tty
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from logbrook.cli.client_options import client_security
from logbrook.cli.connection import Bootstrap, bootstrap_servers, connected_admin
from logbrook.cli.failures import describe_error, refuse
from logbrook.cli.terminal import ParagraphCommand, Row
from logbrook.client import BrokerError, Client, ClientSecurity
from logbrook.client.admin import Admin
from logbrook.client.admin_results import TopicDescription
from logbrook.model import LogbrookError
from logbrook.monitoring.metrics import DEFAULT_PORT
from logbrook.monitoring.sampling import (
    ClusterSample,
    ClusterSampler,
    MetricsSource,
    ObservedGroup,
    TopicRates,
    observe,
)
from logbrook.protocol.errors import UnsupportedApiError, UnsupportedVersionError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

# Shorter than for other commands: an error should appear on the screen soon.
_CONNECT_TIMEOUT_S = 1.0
_RESPONSE_TIMEOUT_S = 3.0
# Longest delay until a key press takes effect.
_KEY_S = 0.1
_KEY = re.compile(rb"\x1b[\[O][A-Z]|.", re.DOTALL)
_KEYS = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down", b"k": "up", b"j": "down"}


@dataclass(frozen=True)
class TopView:
    """The last sample. With `error` set, the newest attempt failed and the other fields are from an earlier one.

    Topics, groups and disks are rows as JSON has them, with None for unknown values.
    """

    at_s: float = 0.0
    cluster_id: str | None = None
    brokers: int = 0
    topics: tuple[Row, ...] = ()
    groups: tuple[Row, ...] = ()
    has_metrics: bool = False
    has_rates: bool = False
    disks: tuple[Row, ...] = ()
    error: str | None = None

    @property
    def usable_bytes(self) -> float | None:
        return _sum(disk["usable_bytes"] for disk in self.disks)

    def total(self, key: str) -> float | None:
        """Return the sum of a column over all topics, None if it is unknown for all."""
        return _sum(topic[key] for topic in self.topics)

    def as_json(self) -> dict[str, Any]:
        return {
            "time": round(self.at_s * 1000),
            "cluster_id": self.cluster_id,
            "brokers": self.brokers,
            "metrics": self.has_metrics,
            "error": self.error,
            "topics": self.topics,
            "groups": self.groups,
            "disks": self.disks,
        }


@app.command(cls=ParagraphCommand)
def top(
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, metavar="SECONDS", help="Time between two samples.")
    ] = 1.0,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="URL",
            help=f"Metrics of a Logbrook broker, for bytes and outgoing traffic; default: port {DEFAULT_PORT} of the "
            "first bootstrap server, if it answers.",
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Take two samples, print one table with the rates between them, and exit.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per sample, one per line.")] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show live throughput, topics, sizes, consumer groups and lag.

    Keys: q quits, s or 1 to 8 sorts by a column, r reverses the order, p pauses, i shows internal topics, the arrow
    keys scroll. If the broker stops, the view stays and is updated when the broker is back.

    JSON: {"time", "cluster_id", "brokers", "metrics", "error", "topics", "groups", "disks"}, with a list of {"topic",
    "internal", "partitions", "records", "size_bytes", "in_records_per_s", "in_bytes_per_s", "out_records_per_s",
    "out_bytes_per_s"}, a list of {"group", "state", "topics", "lag", "read_per_s"} and a list of {"broker", "path",
    "total_bytes", "usable_bytes"}; unknown values are null.

    Examples: logbrook top; logbrook top --once --interval 5; logbrook top --json | jq .topics
    """
    if not once and not as_json and not (sys.stdin.isatty() and sys.stdout.isatty()):
        refuse("--once", "there is no terminal to draw on; --once prints one table, --json a line for each sample")
    with connected_admin(bootstrap) as admin:
        servers = bootstrap_servers(bootstrap, os.environ)
        if once:
            _print_once(_ViewSource(admin, _metrics_source(servers, metrics)), interval, servers, as_json)
            return
        with _Watcher(servers, client_security(), _metrics_source(servers, metrics), interval) as watcher:
            if as_json:
                _stream(watcher)
            else:
                _draw(watcher, servers)


class _ViewSource:
    """Takes samples of a cluster as views. Owned by one thread."""

    def __init__(self, admin: Admin, metrics: MetricsSource | None) -> None:
        self._admin = admin
        self._metrics = metrics
        self._sampler = ClusterSampler()

    def take(self) -> TopView:
        """Raises ClientError or ProtocolError."""
        sample = self._sampler.add(observe(self._admin, self._metrics))
        return _view(sample, self._disks())

    def _disks(self) -> tuple[Row, ...]:
        """Return no rows if the cluster does not support the request or does not allow it.

        Brokers without KIP-827 do not report the sizes.
        """
        try:
            directories = self._admin.log_directories()
        except (BrokerError, UnsupportedApiError, UnsupportedVersionError):
            return ()
        return tuple(
            {
                "broker": disk.broker_id,
                "path": disk.path,
                "total_bytes": disk.total_bytes,
                "usable_bytes": disk.usable_bytes,
            }
            for disk in directories
        )


class _Watcher:
    """A thread that samples a cluster at an interval; `view` is the newest result."""

    def __init__(
        self, servers: str, security: ClientSecurity, metrics: MetricsSource | None, interval_s: float
    ) -> None:
        self.view = TopView()
        self._changed = threading.Condition()
        self._samples = 0
        self._servers = servers
        self._security = security
        self._metrics = metrics
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="logbrook-top", daemon=True)

    def __enter__(self) -> "_Watcher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        # Do not wait for a broker that does not respond; the thread is a daemon.
        self._thread.join(_KEY_S)

    def views(self) -> Iterator[TopView]:
        """Yield new views without end; those published while the caller is busy are skipped."""
        seen = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda seen=seen: self._samples > seen)  # type: ignore[misc]
                seen, view = self._samples, self.view
            yield view

    def _run(self) -> None:
        with Client(
            self._servers,
            client_id="logbrook-top",
            timeout_s=_RESPONSE_TIMEOUT_S,
            connect_timeout_s=_CONNECT_TIMEOUT_S,
            security=self._security,
        ) as client:
            source = _ViewSource(Admin(client), self._metrics)
            while not self._stopping.is_set():
                try:
                    view = source.take()
                except LogbrookError as error:
                    view = replace(self.view, error=describe_error(error).partition(";")[0])
                except Exception as error:
                    # A bug must appear on the screen instead of silently ending the updates.
                    view = replace(self.view, error=f"a bug in top: {error!r}")
                with self._changed:
                    self.view = view
                    self._samples += 1
                    self._changed.notify_all()
                self._stopping.wait(self._interval_s)


def _metrics_source(servers: str, url: str | None) -> MetricsSource | None:
    """An empty URL disables metrics; without one, the default port of the first server is tried."""
    if url is not None:
        return MetricsSource(url, security=client_security()) if url else None
    host = servers.partition(",")[0].rpartition(":")[0]
    return MetricsSource(f"http://{host}:{DEFAULT_PORT}", is_guessed=True)


def _sum(numbers: Iterable[float | None]) -> float | None:
    known_numbers = [number for number in numbers if number is not None]
    return sum(known_numbers) if known_numbers else None


def _view(sample: ClusterSample, disks: tuple[Row, ...]) -> TopView:
    observation = sample.observation
    return TopView(
        observation.at_ms / 1000,
        observation.cluster.cluster_id,
        len(observation.cluster.brokers),
        tuple(_topic_row(topic, sample.topics.get(topic.name, TopicRates())) for topic in observation.topics),
        tuple(_group_row(group, sample.groups.get(group.group_id)) for group in observation.groups or ()),
        observation.metrics is not None,
        sample.has_rates,
        disks,
    )


def _topic_row(topic: TopicDescription, rates: TopicRates) -> Row:
    return {
        "topic": topic.name,
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "records": topic.offsets,
        "size_bytes": topic.size_bytes,
        "in_records_per_s": rates.in_records,
        "in_bytes_per_s": rates.in_bytes,
        "out_records_per_s": rates.out_records,
        "out_bytes_per_s": rates.out_bytes,
    }


def _group_row(group: ObservedGroup, read_per_s: float | None) -> Row:
    return {
        "group": group.group_id,
        "state": group.state,
        "topics": len(group.topics),
        "lag": group.lag,
        "read_per_s": read_per_s,
    }


def _print_once(source: _ViewSource, interval_s: float, servers: str, as_json: bool) -> None:
    source.take()
    threading.Event().wait(interval_s)
    view = source.take()
    if as_json:
        typer.echo(json.dumps(view.as_json()))
        return
    from logbrook.cli.top_screen import print_once  # noqa: PLC0415 - Rich is slow to import, and JSON does not need it

    print_once(view, servers)


def _stream(watcher: _Watcher) -> None:
    for view in watcher.views():
        # The first sample has no rates.
        if view.has_rates or view.error:
            typer.echo(json.dumps(view.as_json()))
            sys.stdout.flush()


def _draw(watcher: _Watcher, servers: str) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    from logbrook.cli.top_screen import ScreenState, screen  # noqa: PLC0415

    console = Console(highlight=False)
    state, view, drawn = ScreenState(), TopView(), None
    with _unbuffered_keys(), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            view = view if state.is_paused else watcher.view
            content = (view, state, console.size)
            if content != drawn:
                live.update(screen(view, state, servers, console.width, console.height), refresh=True)
                drawn = content
            for key in _pressed_keys(_KEY_S):
                if key == "q":
                    return
                state = state.after(key)


def _pressed_keys(timeout_s: float) -> Iterator[str]:
    """Yield the keys pressed, after waiting for the first one for up to `timeout_s`."""
    descriptor = sys.stdin.fileno()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(timeout_s * 1000):
        return
    data = os.read(descriptor, 64)
    if not data:
        # End of file: the terminal was closed.
        yield "q"
        return
    for key in _KEY.findall(data):
        yield _KEYS.get(key) or key.decode("ascii", "replace").lower()


@contextmanager
def _unbuffered_keys() -> Iterator[None]:
    """Put the terminal into cbreak mode without echo, and restore it afterwards."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
