"""The longest wait of another client's request while a topic with many partitions is created and deleted."""

import multiprocessing
import socket
import statistics
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import NamedTuple

from bench.broker_process import API_VERSIONS_REQUEST, BrokerProcess, serving
from bench.rows import Row
from logbrook.client import Client
from logbrook.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

_ROUNDS = {1_000: 3, 10_000: 1}
_WAIT_GOAL_MS = 20.0
_TIMEOUT_S = 600.0
_PAUSE_S = 0.001
# Files are closed and removed after the response.
_SETTLE_S = 2.0


class _Change(NamedTuple):
    took_s: float
    wait_ms: float


def run() -> list[Row]:
    return [row for partitions, rounds in _ROUNDS.items() for row in _measure(partitions, rounds)]


def _measure(partitions: int, rounds: int) -> list[Row]:
    created: list[_Change] = []
    deleted: list[_Change] = []
    for _ in range(rounds):
        with serving() as broker, Client(broker.address, timeout_s=_TIMEOUT_S) as client:
            created.append(_watched(broker, partial(client.create_topic, "wide", partitions)))
            deleted.append(_watched(broker, partial(_delete, client)))
    rows = []
    for what, changes in (("created", created), ("deleted", deleted)):
        title = f"topic of {partitions:,} partitions {what}"
        took_s = statistics.median(change.took_s for change in changes)
        wait_ms = statistics.median(change.wait_ms for change in changes)
        rows.append(Row(f"{title}: time", took_s, "s"))
        rows.append(Row(f"{title}: longest wait of others", wait_ms, "ms", _WAIT_GOAL_MS, higher_is_better=False))
    return rows


def _delete(client: Client) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="wide")], timeout_ms=int(_TIMEOUT_S * 1000))
    response = client.request(request, DeleteTopicsResponse)
    assert not any(topic.error_code for topic in response.responses)


def _watched(broker: BrokerProcess, change: Callable[[], None]) -> _Change:
    """Make the change while another process sends small requests, from before it until files are settled."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    watcher = context.Process(target=_watch, args=(broker.port, theirs), daemon=True)
    watcher.start()
    ours.recv()
    started = time.perf_counter()
    change()
    took_s = time.perf_counter() - started
    ours.poll(_SETTLE_S)
    ours.send(None)
    wait_s = ours.recv()
    watcher.join()
    return _Change(took_s, 1000 * wait_s)


def _watch(port: int, control: Connection) -> None:
    """Send a request every millisecond, and report the longest time until a response when told to stop."""
    longest_s = 0.0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _ask(connection)
        control.send(None)
        while not control.poll(_PAUSE_S):
            started = time.perf_counter()
            _ask(connection)
            longest_s = max(longest_s, time.perf_counter() - started)
    control.send(longest_s)


def _ask(connection: socket.socket) -> None:
    connection.sendall(API_VERSIONS_REQUEST)
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    connection.recv(size, socket.MSG_WAITALL)
