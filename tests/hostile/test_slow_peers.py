"""Those who take forever over a request or an answer are hung up on; those who merely wait are not."""

import select
import socket
import time
from contextlib import ExitStack

import pytest

from logbrook.client import Client, Connection
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from logbrook.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from tests.hostile.victim import HONEST, MIB, Victim
from tests.hostile.wire import is_hung_up_on, raw_frame, request_frame

STALLED_MS = 400
ANSWERS_BYTES_MAX = 16 * MIB
FETCH_BYTES_MAX = 8 * MIB
READERS = 40
# All together hold up what answers may, and each a write buffer.
HELD_BYTES_MAX = ANSWERS_BYTES_MAX + READERS * MIB + 64 * MIB
# The allocator gives back what it likes of that.
GROWTH_BYTES_MAX = HELD_BYTES_MAX
FLAGS = (
    "--network-connection-stalled-ms",
    str(STALLED_MS),
    "--network-fetch-bytes-max",
    str(FETCH_BYTES_MAX),
    "--network-answers-bytes-max",
    str(ANSWERS_BYTES_MAX),
)
# The broker looks around every now and then, and this machine may be busy.
REAPED_S_MAX = 5.0


@pytest.mark.parametrize("size", [1, 4, 11, 12, 13, 1000])
def test_half_a_request_and_then_nothing_is_hung_up_on(victim: Victim, size: int) -> None:
    with victim.connect(REAPED_S_MAX) as connected:
        connected.sendall(raw_frame(0, 9, bytes(2000))[:size])
        assert is_hung_up_on(connected)


def test_a_request_that_comes_byte_by_byte_and_never_ends_is_hung_up_on(victim: Victim) -> None:
    frame = raw_frame(0, 9, bytes(2000))
    with victim.connect() as connected:
        connected.settimeout(0.02)
        before_s = time.monotonic()
        for byte in frame:
            try:
                connected.sendall(bytes([byte]))
                if is_hung_up_on(connected):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        assert time.monotonic() - before_s < REAPED_S_MAX
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
        assert client.fetch(HONEST, 0, end, max_wait_ms=3 * STALLED_MS).batches == []
        client.fetch(HONEST, 0, 0)


@pytest.fixture(scope="module")
def large(victim: Victim) -> str:
    """A topic with more than one fetch may have."""
    batch = build_batch([Record(value=bytes(100_000))])
    with Client(victim.address) as client:
        client.create_topic("large")
        for _ in range(FETCH_BYTES_MAX // len(batch) + 1):
            client.produce("large", 0, batch)
    return "large"


def read_never(victim: Victim, stack: ExitStack, topic: str) -> list[socket.socket]:
    """Connections that have asked for everything many times, and take none of it."""
    partition = FetchPartition(partition_max_bytes=2**31 - 1)
    request = FetchRequest(max_bytes=2**31 - 1, topics=[FetchTopic(topic=topic, partitions=[partition])])
    readers = [stack.enter_context(victim.connect(unread_bytes_max=16 * 1024)) for _ in range(READERS)]
    for connected in readers:
        connected.sendall(request_frame(request, 11) * 100)
    return readers


def test_those_who_never_read_take_what_answers_may_and_are_hung_up_on(victim: Victim, large: str) -> None:
    with ExitStack() as stack, victim.peak_below(HELD_BYTES_MAX):
        read_never(victim, stack, large)
        victim.check()
        assert victim.wait_until(lambda: victim.reaped == READERS, 2 * REAPED_S_MAX)


def test_those_who_never_read_are_reset_so_that_the_system_lets_go_of_their_answers(victim: Victim, large: str) -> None:
    """One that is merely closed keeps megabytes of what it has to send, for minutes, and there may be thousands."""
    with ExitStack() as stack:
        waiting = read_never(victim, stack, large)
        assert victim.wait_until(lambda: victim.reaped == READERS, 2 * REAPED_S_MAX)
        assert sum(map(is_reset, waiting)) == READERS


def test_what_never_reading_takes_is_taken_once(victim: Victim, large: str) -> None:
    """What the allocator has kept is used for those who come next."""
    for round_ in range(1, 4):
        with ExitStack() as stack:
            read_never(victim, stack, large)
            assert victim.wait_until(lambda: victim.reaped == round_ * READERS, 2 * REAPED_S_MAX)  # noqa: B023
        victim.check()
        if round_ == 1:
            kept = victim.memory_bytes
    assert victim.memory_bytes - kept < HELD_BYTES_MAX / 2


def is_reset(connected: socket.socket) -> bool:
    """Whether the broker has reset the connection. What there is to read is not looked at: that would be reading."""
    poll = select.poll()
    poll.register(connected, 0)
    return bool(poll.poll(1_000))
