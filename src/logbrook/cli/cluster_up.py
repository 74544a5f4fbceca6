"""`logbrook cluster up`: an etcd and several brokers on this machine, until Ctrl-C."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from logbrook.cli.failures import fail
from logbrook.cli.terminal import ParagraphCommand, print_table
from logbrook.client import Client, ClientError
from logbrook.client.admin import Admin
from logbrook.model.version import install_command
from logbrook.ports.parent_process import end_with_parent
from logbrook.testing.etcd import EtcdProcess, build_etcd, find_etcd
from logbrook.testing.processes import wait_until

_START_S_MAX = 60.0
_STOP_S_MAX = 30.0
_POLL_S = 0.2
# The ports of etcd for clients and for other members, counted from the port of the first broker.
_ETCD_PORTS = (1_000, 1_001)
_NODES_MAX = 9


def add_to(app: typer.Typer) -> None:
    app.command(cls=ParagraphCommand)(up)


def up(
    nodes: Annotated[int, typer.Option(help="Number of brokers.", min=1, max=_NODES_MAX)] = 3,
    data: Annotated[Path, typer.Option(help="Directory for the data and logs of all processes; kept.")] = Path(
        "logbrook-cluster"
    ),
    port: Annotated[int, typer.Option(help="Port of the first broker; the others follow.", min=1, max=60_000)] = 9092,
) -> None:
    """Run a cluster on this machine: an etcd and several brokers, until Ctrl-C.

    Example: logbrook cluster up --nodes 3

    It is for trying out and for tests: brokers on one machine do not survive its loss. etcd is taken from the PATH or
    from the cache, or built with Go. The data is kept in --data for the next start. To see a failover, kill one of the
    brokers; the processes are listed at the start.
    """
    if find_spec("h2") is None:
        fail(f"a cluster needs the package h2: {install_command('cluster')}")
    stopping = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with ExitStack() as stack:
        command = _etcd(stopping)
        if stopping.is_set():
            return
        etcd = EtcdProcess(
            command, directory=data.resolve() / "etcd", ports=(port + _ETCD_PORTS[0], port + _ETCD_PORTS[1])
        )
        try:
            stack.enter_context(etcd)
        except TimeoutError as error:
            fail(str(error))
        brokers = [_Broker(number, port + number - 1, etcd.address, data.resolve()) for number in range(1, nodes + 1)]
        # A stopping broker hands its leadership over to those that are not stopping. All get SIGTERM before the first
        # is waited for, so that leadership does not move from broker to broker.
        stack.callback(_stop, brokers)
        for broker in brokers:
            if not stopping.is_set():
                broker.start()
        _wait_until_started(brokers, stopping)
        if not stopping.is_set():
            rows = [[broker.number, broker.address, broker.pid, _short(broker.log)] for broker in brokers]
            print_table(["NODE", "ADDRESS", "PID", "LOG"], rows)
            servers = ",".join(broker.address for broker in brokers)
            typer.echo(f"\nbootstrap servers: {servers}\nCtrl-C stops all of them.")
        _watch(brokers, stopping)


class _Broker:
    """A `logbrook serve` process. The kernel kills it if this process ends."""

    def __init__(self, number: int, port: int, etcd: str, data: Path) -> None:
        self.number = number
        self.address = f"127.0.0.1:{port}"
        self.log = data / f"node-{number}.log"
        self._command = [sys.executable, "-m", "logbrook", "serve", "--node", str(number), "--metrics", ""]
        self._command += [
            "--cluster",
            f"{etcd}/local",
            "--listen",
            self.address,
            "--data",
            str(data / f"node-{number}"),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return -1 if self._process is None else self._process.pid

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        parent_pid = os.getpid()
        with self.log.open("ab") as log:
            # In a session of its own: Ctrl-C reaches this process only, which then stops all brokers.
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: end_with_parent(parent_pid),  # noqa: PLW1509 - there are no other threads
            )

    def end(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def wait(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(_STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def _etcd(stopping: Event) -> str:
    """Return the path of an etcd, built if there is none. A build that `stopping` has interrupted is no failure."""
    command = find_etcd()
    if command is None:
        typer.echo("building etcd, once; this takes some minutes", err=True)
        try:
            return str(build_etcd())
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            if stopping.is_set():
                return ""
            fail(f"there is no etcd on the PATH, and it cannot be built: {error}")
    return command


def _wait_until_started(brokers: list[_Broker], stopping: Event) -> None:
    def is_started() -> bool:
        ended = next((broker for broker in brokers if broker.exit_code is not None), None)
        if ended is not None:
            fail(f"node {ended.number} did not start; the end of {_short(ended.log)}:\n{_tail(ended.log)}")
        return stopping.is_set() or _live(brokers) == len(brokers)

    if not wait_until(is_started, _START_S_MAX, _POLL_S):
        fail(f"the brokers did not start in {_START_S_MAX:.0f} s; see {_short(brokers[0].log)}")


def _live(brokers: list[_Broker]) -> int:
    try:
        with Client(brokers[0].address, timeout_s=1.0) as client:
            return len(Admin(client).describe_cluster().brokers)
    except ClientError:
        return 0


def _watch(brokers: list[_Broker], stopping: Event) -> None:
    """Report brokers that end, until the stop."""
    running = list(brokers)
    while not stopping.wait(_POLL_S):
        for broker in [broker for broker in running if broker.exit_code is not None]:
            running.remove(broker)
            typer.echo(f"node {broker.number} has ended; see {_short(broker.log)}", err=True)


def _stop(brokers: list[_Broker]) -> None:
    for broker in brokers:
        broker.end()
    for broker in brokers:
        broker.wait()


def _short(path: Path) -> str:
    return os.path.relpath(path)


def _tail(path: Path) -> str:
    return "\n".join(path.read_text().splitlines()[-3:])
