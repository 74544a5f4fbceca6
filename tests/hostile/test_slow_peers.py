"""Clients that stall within a request or a response are disconnected; idle clients are not."""

import select
import socket
from contextlib import ExitStack

import pytest

from logbrook.client import Client, Connection
from logbrook.model.identifiers import Offset
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from logbrook.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from tests.hostile.victim import HONEST, MIB, Victim, sampled
from tests.hostile.wire import is_hung_up_on, raw_frame, request_frame

STALLED_MS = 400
ANSWERS_BYTES_MAX = 16 * MIB
FETCH_BYTES_MAX = 8 * MIB
READERS = 40
BATCH = build_batch([Record(value=bytes(100_000))])
# The response that reaches the limit may exceed it by one batch. Without the limit there would be 320 MiB.
UNSENT_BYTES_MAX = ANSWERS_BYTES_MAX + 2 * len(BATCH)
# The allocator keeps memory of a round: partly sent responses, and a write buffer of each client.
GROWTH_BYTES_MAX = 200 * MIB
# A round that leaks a single response grows by more.
LEAK_BYTES_MIN = FETCH_BYTES_MAX // 2
ROUNDS_MIN = 3
ROUNDS_MAX = 12
FLAGS = (
    "--network-connection-stalled-ms",
    str(STALLED_MS),
    "--network-fetch-bytes-max",
    str(FETCH_BYTES_MAX),
    "--network-answers-bytes-max",
    str(ANSWERS_BYTES_MAX),
)
# The broker looks for stalled connections at intervals, and the machine may be busy.
REAPED_S_MAX = 30.0


def test_a_client_that_stalls_within_a_request_is_disconnected(victim: Victim) -> None:
    sizes = (1, 4, 11, 12, 13, 1000)
    with ExitStack() as stack:
        stalled = [stack.enter_context(victim.connect(REAPED_S_MAX)) for _ in sizes]
        for connected, size in zip(stalled, sizes, strict=True):
            connected.sendall(raw_frame(0, 9, bytes(2000))[:size])
        assert [is_hung_up_on(connected) for connected in stalled] == [True] * len(sizes)
    assert victim.wait_until(lambda: victim.reaped == len(sizes), REAPED_S_MAX)


def test_a_client_that_sends_a_request_byte_by_byte_is_disconnected(victim: Victim) -> None:
    frame = raw_frame(0, 9, bytes(2000))
    with victim.connect() as connected:
        connected.settimeout(0.02)
        for byte in frame:
            try:
                connected.sendall(bytes([byte]))
                if is_hung_up_on(connected):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            raise AssertionError("the whole request was taken")
    assert victim.wait_until(lambda: victim.reaped == 1, REAPED_S_MAX)


def test_a_connection_that_asks_for_nothing_is_left_alone(victim: Victim) -> None:
    with Connection(victim.host, victim.port) as connection, victim.connect(3 * STALLED_MS / 1000) as other:
        connection.request(HeartbeatRequest(group_id="g"), HeartbeatResponse)
        with pytest.raises(TimeoutError):
            other.recv(1)
        connection.request(HeartbeatRequest(group_id="g"), HeartbeatResponse)


def test_a_fetch_that_waits_for_records_is_left_alone(victim: Victim) -> None:
    with Client(victim.address) as client:
        end = client.list_offset(HONEST, 0)
        assert client.fetch(HONEST, 0, Offset(end), max_wait_ms=3 * STALLED_MS).batches == []
        client.fetch(HONEST, 0, Offset(0))


@pytest.fixture(scope="module")
def large(victim: Victim) -> str:
    """A topic with more records than one fetch may have."""
    with Client(victim.address) as client:
        client.create_topic("large")
        for _ in range(FETCH_BYTES_MAX // len(BATCH) + 1):
            client.produce("large", 0, BATCH)
    return "large"


def read_never(victim: Victim, stack: ExitStack, topic: str) -> list[socket.socket]:
    """Open connections that have sent many fetches and read none of the responses.

    Each waits for the beginning of its first response: the broker then knows how much of it is unsent, and bounds the
    next response by that.
    """
    partition = FetchPartition(partition_max_bytes=2**31 - 1)
    # A fetch that finds no memory waits for it.
    topics = [FetchTopic(topic=topic, partitions=[partition])]
    request = FetchRequest(max_bytes=2**31 - 1, min_bytes=1, max_wait_ms=60_000, topics=topics)
    readers = [stack.enter_context(victim.connect(unread_bytes_max=16 * 1024)) for _ in range(READERS)]
    for connected in readers:
        connected.sendall(request_frame(request, 11) * 100)
        connected.recv(1, socket.MSG_PEEK)
    return readers


def test_clients_that_never_read_hold_bounded_memory_and_are_disconnected(victim: Victim, large: str) -> None:
    """The unsent bytes are bounded; `test_memory_of_unread_answers_is_used_again` is about memory."""
    with ExitStack() as stack, sampled(lambda: victim.metric("logbrook_unsent_bytes")) as samples:
        read_never(victim, stack, large)
        victim.check()
        wait_until_freed(victim)
    assert 0 < max(samples) < UNSENT_BYTES_MAX


def test_clients_that_never_read_are_reset_so_that_the_kernel_frees_unsent_data(victim: Victim, large: str) -> None:
    """A connection that is merely closed keeps megabytes of unsent data for minutes, and there may be thousands."""
    with ExitStack() as stack:
        waiting = read_never(victim, stack, large)
        wait_until_freed(victim)
        assert victim.wait_until(lambda: sum(map(is_reset, waiting)) == victim.reaped, REAPED_S_MAX)


def test_memory_of_unread_answers_is_used_again(victim: Victim, large: str) -> None:
    """A leak grows the process in every round; the allocator only until it has enough memory to reuse.

    A leak of what one round holds never ends the rounds.
    """
    growth: list[int] = []
    while len(growth) < ROUNDS_MIN or growth[-1] >= LEAK_BYTES_MIN:
        assert len(growth) < ROUNDS_MAX, growth
        before = victim.memory_bytes
        with ExitStack() as stack:
            read_never(victim, stack, large)
            wait_until_freed(victim)
        victim.check()
        growth.append(victim.memory_bytes - before)


def wait_until_freed(victim: Victim) -> None:
    """Wait until clients are disconnected, and nothing is held for the others, which found no memory for records."""

    def is_freed() -> bool:
        return victim.reaped > 0 and not victim.metric("logbrook_unsent_bytes") + victim.metric("logbrook_fetch_waits")

    assert victim.wait_until(is_freed, 2 * REAPED_S_MAX)


def is_reset(connected: socket.socket) -> bool:
    """True if the broker has reset the connection, without reading."""
    poll = select.poll()
    poll.register(connected, 0)
    return bool(poll.poll(0))
