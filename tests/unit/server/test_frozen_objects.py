"""The garbage collector does not visit the objects of the start (`run`), so deleted ones must be freed without it."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from logbrook.protocol.messages.fetch import FetchResponse
from logbrook.protocol.messages.produce import ProduceResponse
from logbrook.server.connection import ServerConnection
from logbrook.testing import MemoryFiles
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.shell_kit import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    Shell,
    batch_of,
    fetch_request,
    produce_request,
    until,
)

# Prints how many objects are frozen and how many are not when the broker has started, and stops it.
COUNT_OBJECTS = """
import gc, os, signal, sys
from logbrook.config import BrokerConfig
from logbrook.server import run

class CountingLogger:
    def info(self, event, **fields):
        if event == "broker started":
            print(gc.get_freeze_count(), len(gc.get_objects()))
            os.kill(os.getpid(), signal.SIGTERM)

run._logger = CountingLogger()
config = BrokerConfig(data=sys.argv[1], network={"listen": "127.0.0.1:0"}, metrics={"listen": ""})
sys.exit(run.run(config))
"""


def test_the_objects_of_the_start_are_frozen(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COUNT_OBJECTS, str(tmp_path)]
    counted = subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=True, text=True)
    frozen, others = map(int, counted.stdout.split())
    assert frozen > 100 * others


@contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_a_closed_connection_is_freed_without_the_garbage_collector() -> None:
    """Objects of clients that are connected while topics are created are frozen too."""
    with Shell() as shell:
        shell.create("t")
        with closing(shell.client()) as client:
            client.request(produce_request("t", batch_of()), ProduceResponse, PRODUCE_VERSION)
            client.request(fetch_request("t"), FetchResponse, FETCH_VERSION)
            with without_collector():
                assert len(connections_of(shell)) == 1
                client.close()
                until(lambda: not connections_of(shell))


def connections_of(shell: Shell) -> list[ServerConnection]:
    connections = [item for item in gc.get_objects() if isinstance(item, ServerConnection)]
    return [connection for connection in connections if connection._registry is shell.broker.listener]


def test_a_deleted_log_is_freed_without_the_garbage_collector() -> None:
    files = MemoryFiles()
    with HandlerShell(files=files) as shell:
        shell.create("t", 2)
    with HandlerShell(files=files) as shell, closing(shell.client()) as client:
        for _ in range(3):
            client.request(produce_request("t", batch_of()), ProduceResponse, PRODUCE_VERSION)
            shell.call(shell.log("t").roll)
        client.request(fetch_request("t"), FetchResponse, FETCH_VERSION)
        shell.run(shell.broker.maintenance.checkpoint())
        logs = [weakref.ref(shell.log("t", partition)) for partition in range(2)]
        with without_collector():
            shell.run(shell.services.topics.delete("t"))
            assert [log() for log in logs] == [None, None]
