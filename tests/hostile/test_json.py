"""The listener for the JSON protocol: invalid requests are refused, and no client can block the others."""

import json
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from random import Random
from typing import Any

import pytest

from logbrook.client import Client
from logbrook.records.batch import Codec
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing.processes import wait_until
from tests.hostile.victim import HONEST, MIB, Victim
from tests.hostile.wire import all_answers, is_hung_up_on, receive_frame

PRODUCE, FETCH, CREATE_TOPIC, METRICS, PING = 1, 2, 5, 9, 10
ERROR = 255
STALLED_MS = 500
CONNECTIONS_MAX = 150
REQUEST_BYTES_MAX = 2 * MIB
FETCH_BYTES_MAX = 8 * MIB
ANSWERS_BYTES_MAX = 16 * MIB
READERS = 30
# Clients that never read hold all memory for responses, a write buffer each, and one response being encoded.
HELD_BYTES_MAX = ANSWERS_BYTES_MAX + READERS * MIB + 96 * MIB
GROWTH_BYTES_MAX = HELD_BYTES_MAX
FLAGS = (
    "--json-port",
    "127.0.0.1:0",
    "--network-connection-stalled-ms",
    str(STALLED_MS),
    "--network-connections-max",
    str(CONNECTIONS_MAX),
    "--network-fetch-bytes-max",
    str(FETCH_BYTES_MAX),
    "--network-answers-bytes-max",
    str(ANSWERS_BYTES_MAX),
)
# The broker checks connections at intervals, and the machine may be busy.
REAPED_S_MAX = 30.0


def frame(kind: int, payload: bytes | Mapping[str, Any] = b"", *, length: int | None = None) -> bytes:
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return struct.pack(">IB", 1 + len(body) if length is None else length, kind) + body


def ping(number: int) -> bytes:
    return frame(PING, {"id": number})


@contextmanager
def connected_to(victim: Victim, **how: Any) -> Iterator[socket.socket]:
    assert victim.wait_until(lambda: victim.json_port > 0, REAPED_S_MAX)
    with victim.connect(port=victim.json_port, **how) as connected:
        yield connected


def receive(connected: socket.socket) -> tuple[int, dict[str, Any]]:
    answer = receive_frame(connected)
    assert answer is not None, "the broker has hung up"
    return answer[0], json.loads(answer[1:])


def check(victim: Victim) -> None:
    """Check that valid clients of both protocols are served."""
    victim.check()
    with connected_to(victim) as connected:
        connected.sendall(ping(1))
        assert receive(connected) == (PING | 128, {"id": 1, "pong": True})


# Invalid lengths


@pytest.mark.parametrize("length", [0, REQUEST_BYTES_MAX + 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_an_impossible_length_is_reported_and_closes_the_connection(victim: Victim, length: int) -> None:
    with connected_to(victim) as connected, victim.peak_below(16 * MIB):
        connected.sendall(ping(1) + frame(PING, b"{}", length=length) + ping(2))
        assert receive(connected)[1]["id"] == 1
        kind, message = receive(connected)
        assert (kind, message["error"]) == (ERROR, "BrokenFrame")
        assert is_hung_up_on(connected)
    check(victim)


def test_a_length_that_is_too_short_makes_the_rest_invalid(victim: Victim) -> None:
    with connected_to(victim) as connected:
        connected.sendall(frame(PING, {"id": 1, "padding": "x" * 100}, length=20))
        answers = [json.loads(answer[1:])["error"] for answer in all_answers(connected)]
    assert answers == ["InvalidRequest", "BrokenFrame"]


def test_announced_frames_use_little_memory(victim: Victim) -> None:
    with ExitStack() as stack, victim.peak_below(32 * MIB):
        for _ in range(100):
            connected = stack.enter_context(connected_to(victim))
            connected.sendall(frame(PRODUCE, b"{", length=REQUEST_BYTES_MAX))
        check(victim)


# Garbage


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_are_refused(victim: Victim, seed: int) -> None:
    with connected_to(victim) as connected:
        with suppress(ConnectionError):
            connected.sendall(Random(seed).randbytes(50_000))
        for answer in all_answers(connected):
            assert json.loads(answer[1:])["error"] in ("InvalidRequest", "BrokenFrame")


@pytest.mark.parametrize("seed", range(20))
def test_requests_with_bytes_changed_are_answered_and_the_connection_stays_open(victim: Victim, seed: int) -> None:
    random = Random(seed)
    whole = json.dumps({"topic": HONEST, "partition": 0, "records": [{"key": "k", "value": "v", "timestamp": 5}]})
    with connected_to(victim) as connected:
        for number in range(100):
            body = bytearray(whole.encode())
            for _ in range(random.randint(1, 3)):
                body[random.randrange(len(body))] = random.randrange(256)
            connected.sendall(frame(random.choice((PRODUCE, FETCH, CREATE_TOPIC, 0, 77)), bytes(body)) + ping(number))
            assert receive(connected)[0] in (ERROR, PRODUCE | 128)
            assert receive(connected) == (PING | 128, {"id": number, "pong": True})


@pytest.mark.parametrize(
    "hello",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"\xff" * 5000,
    ],
    ids=["http", "tls", "ones"],
)
def test_another_protocol_is_answered_with_an_error(victim: Victim, hello: bytes) -> None:
    with connected_to(victim) as connected:
        connected.sendall(hello)
        assert receive(connected)[1]["error"] == "BrokenFrame"
        assert is_hung_up_on(connected)


# Huge and deep JSON


def filled(start: bytes, unit: bytes, end: bytes, size: int = REQUEST_BYTES_MAX - 1) -> bytes:
    return start + unit * ((size - len(start) - len(end)) // len(unit)) + end


RECORDS = b'{"topic":"honest","partition":0,"records":['
COSTLY = {
    "deep lists": filled(b'{"id":', b"[", b""),
    "deep lists that end": b'{"id":' + b"[" * 900_000 + b"]" * 900_000 + b"}",
    "deep objects": filled(b"", b'{"a":', b""),
    "lists": filled(RECORDS, b"[],", b"[]]}"),
    "objects": filled(RECORDS, b"{},", b"{}]}"),
    "texts": filled(RECORDS, b'"",', b'""]}'),
    "escaped texts": filled(RECORDS, b'"\\"",', b'""]}'),
    "numbers": filled(RECORDS, b"1,", b"1]}"),
    "fractions": filled(RECORDS, b"1.2345678901234567890123456789e-300,", b"1]}"),
    "long numbers": filled(RECORDS, b"9" * 4200 + b",", b"1]}"),
    "one number": filled(b'{"id":', b"9", b"}"),
    "names": b"{" + b",".join(b'"%07d":1' % number for number in range(170_000)) + b"}",
    "the same name": filled(b"{", b'"id":1,', b'"id":1}'),
    "headers": filled(RECORDS + b'{"headers":[', b'{"key":""},', b'{"key":""}]}]}'),
    "settings": b'{"topic":"t","settings":{' + b",".join(b'"%07d":""' % number for number in range(150_000)) + b"}}",
    "spaces": filled(b'{"id":[', b" ", b"]}"),
    "escapes": filled(b'{"id":"', b"\\u00e9", b'"}'),
    "line ends": filled(b'{"id":"', b"\\n", b'"}'),
}


@pytest.mark.parametrize("name", COSTLY)
def test_json_that_costs_a_lot_to_read_is_refused_and_the_connection_stays_open(victim: Victim, name: str) -> None:
    assert len(COSTLY[name]) < REQUEST_BYTES_MAX
    kind = CREATE_TOPIC if name == "settings" else PRODUCE
    with connected_to(victim) as connected, victim.peak_below(64 * MIB):
        connected.sendall(frame(kind, COSTLY[name]) + ping(1))
        refused, message = receive(connected)
        assert (refused, message["error"]) == (ERROR, "InvalidRequest")
        assert len(message["message"]) <= 1_000
        assert receive(connected)[1]["id"] == 1
    check(victim)


def test_many_costly_requests_at_once_do_not_block_the_others(victim: Victim) -> None:
    record = {"key": "k", "value": "v", "timestamp": 5, "headers": [{"key": "a", "value": "b"}] * 2}
    full = frame(PRODUCE, {"topic": HONEST, "partition": 0, "records": [record] * 2_000})
    lists = frame(PRODUCE, b'{"records":[' + b"[]," * 16_000 + b"[]]}")
    with connected_to(victim) as first, connected_to(victim) as second:
        for connected in (first, second):
            connected.sendall((full + lists) * 5)
        check(victim)
        for connected in (first, second):
            kinds = [receive(connected)[0] for _ in range(10)]
            assert kinds == [PRODUCE | 128, ERROR] * 5


def test_a_request_of_the_maximum_size_is_accepted(victim: Victim) -> None:
    body = filled(b'{"topic":"honest","partition":0,"records":[{"value":"', b"v", b'"}]}', 900_000)
    padding = b" " * (REQUEST_BYTES_MAX - 1 - len(body))
    with connected_to(victim) as connected:
        connected.sendall(frame(PRODUCE, body + padding))
        kind, message = receive(connected)
        assert kind == PRODUCE | 128, message
        connected.sendall(frame(PRODUCE, body + padding + b" "))
        assert receive(connected)[1]["error"] == "BrokenFrame"


# Slow clients, and clients that never read


def test_a_client_that_stalls_within_a_frame_is_disconnected(victim: Victim) -> None:
    sizes = (1, 4, 5, 1000)
    with ExitStack() as stack:
        stalled = [stack.enter_context(connected_to(victim, timeout_s=REAPED_S_MAX)) for _ in sizes]
        for connected, size in zip(stalled, sizes, strict=True):
            connected.sendall(frame(PING, b" " * 2000)[:size])
        assert [is_hung_up_on(connected) for connected in stalled] == [True] * len(sizes)
    assert victim.wait_until(lambda: victim.reaped == len(sizes), REAPED_S_MAX)


def test_a_client_that_sends_a_frame_byte_by_byte_is_disconnected(victim: Victim) -> None:
    with connected_to(victim) as connected:
        connected.settimeout(0.02)
        for byte in frame(PING, b" " * 2000):
            try:
                connected.sendall(bytes([byte]))
                if is_hung_up_on(connected):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            raise AssertionError("it came to its end")
    assert victim.wait_until(lambda: victim.reaped == 1, REAPED_S_MAX)


def test_a_fetch_that_waits_is_left_alone(victim: Victim) -> None:
    with connected_to(victim) as connected:
        where = {"topic": HONEST, "partition": 0, "offset": "latest", "max_wait_ms": 3 * STALLED_MS}
        connected.sendall(frame(FETCH, where))
        assert receive(connected)[1]["records"] == []
    assert victim.reaped == 0


@pytest.fixture(scope="module")
def large(victim: Victim) -> str:
    """A topic with more records than one response may have."""
    batch = build_batch([Record(value=bytes(100_000))])
    with Client(victim.address) as client:
        client.create_topic("large")
        for _ in range(FETCH_BYTES_MAX // len(batch) + 1):
            client.produce("large", 0, batch)
    return "large"


def test_clients_that_never_read_hold_bounded_memory_and_are_disconnected(victim: Victim, large: str) -> None:
    ask = frame(FETCH, {"topic": large, "partition": 0, "offset": 0, "max_bytes": FETCH_BYTES_MAX})
    with ExitStack() as stack, victim.peak_below(HELD_BYTES_MAX):
        for _ in range(READERS):
            connected = stack.enter_context(connected_to(victim, unread_bytes_max=16 * 1024))
            connected.sendall(ask * 50)
        victim.check()
        # Those that found no memory in time got no records, and are not disconnected.
        assert victim.wait_until(lambda: victim.reaped > 0, REAPED_S_MAX)
        assert victim.wait_until(lambda: not victim.metric("logbrook_unsent_bytes"), REAPED_S_MAX)


def test_a_metrics_response_that_is_not_read_is_abandoned(victim: Victim) -> None:
    with connected_to(victim, unread_bytes_max=4 * 1024) as connected, victim.peak_below(64 * MIB):
        with suppress(TimeoutError, ConnectionError):
            connected.settimeout(REAPED_S_MAX)
            connected.sendall(frame(METRICS, {}) * 20_000)
        check(victim)
        assert victim.wait_until(lambda: victim.reaped == 1, 2 * REAPED_S_MAX)


def test_a_batch_that_decompresses_to_much_is_returned_and_its_memory_released(victim: Victim) -> None:
    batch = build_batch([Record(value=b"v" * 200_000)] * 40, codec=Codec.ZSTD)
    assert len(batch) < 10_000
    with Client(victim.address) as client:
        client.create_topic("dense")
        client.produce("dense", 0, batch)
    with connected_to(victim) as connected:
        connected.sendall(frame(FETCH, {"topic": "dense", "partition": 0, "offset": 0, "max_bytes": 500_000}))
        assert len(receive(connected)[1]["records"]) == 2
    check(victim)


def test_a_record_too_large_for_any_response_is_reported_and_can_be_skipped(victim: Victim) -> None:
    with Client(victim.address) as client:
        client.create_topic("bombs")
        client.produce("bombs", 0, build_batch([Record(value=b"before")]))
        client.produce("bombs", 0, build_batch([Record(value=bytes(64 * MIB))], codec=Codec.ZSTD))
        client.produce("bombs", 0, build_batch([Record(value=b"after")]))
    where = {"topic": "bombs", "partition": 0, "max_bytes": FETCH_BYTES_MAX}
    with connected_to(victim) as connected:
        connected.sendall(b"".join(frame(FETCH, {**where, "offset": offset}) for offset in range(3)))
        assert [record["value"] for record in receive(connected)[1]["records"]] == ["before"]
        kind, message = receive(connected)
        assert (kind, message["error"], message["size"]) == (ERROR, "RecordTooLarge", 64 * MIB)
        assert [record["value"] for record in receive(connected)[1]["records"]] == ["after"]


def test_answers_that_wait_for_the_one_before_them_are_bounded_too(victim: Victim, large: str) -> None:
    """No client reads slowly: each waits for a record that never arrives, with large fetches queued behind it."""
    wait = frame(FETCH, {"topic": HONEST, "partition": 0, "offset": "latest", "max_wait_ms": 10_000})
    ask = frame(FETCH, {"topic": large, "partition": 0, "offset": 0, "max_bytes": FETCH_BYTES_MAX})
    with ExitStack() as stack, victim.peak_below(HELD_BYTES_MAX):
        for _ in range(READERS):
            stack.enter_context(connected_to(victim)).sendall(wait + ask * 50)
        check(victim)
        # A client that keeps reading receives every response, and records as soon as there is memory for them.
        waiting = stack.enter_context(connected_to(victim))
        waiting.sendall(
            frame(FETCH, {"topic": HONEST, "partition": 0, "offset": "latest", "max_wait_ms": 500}) + ask * 5
        )
        assert receive(waiting)[1]["records"] == []
        assert all("records" in receive(waiting)[1] for _ in range(5))

        def has_records() -> bool:
            waiting.sendall(ask)
            return bool(receive(waiting)[1]["records"])

        assert victim.wait_until(has_records, REAPED_S_MAX)


# Many connections


def test_connections_above_the_limit_are_closed_and_the_others_served(victim: Victim) -> None:
    def is_let_in() -> bool:
        try:
            with connected_to(victim) as connected:
                connected.sendall(ping(1))
                return receive_frame(connected) is not None
        except ConnectionError:
            return False

    with ExitStack() as stack:
        connected = [stack.enter_context(connected_to(victim)) for _ in range(CONNECTIONS_MAX)]
        for number, connection in enumerate(connected):
            connection.sendall(ping(number))
        assert [receive(connection)[1]["id"] for connection in connected] == list(range(CONNECTIONS_MAX))
        assert not any(is_let_in() for _ in range(20))
        connected[0].sendall(ping(7))
        assert receive(connected[0])[1]["id"] == 7
    assert wait_until(is_let_in, REAPED_S_MAX)


def test_short_connections_leave_no_state(victim: Victim) -> None:
    before = victim.open_files
    whole = ping(1)
    for number in range(1000):
        with connected_to(victim) as connected:
            connected.sendall(whole[: number % (len(whole) + 1)])
    check(victim)
    assert wait_until(lambda: victim.open_files <= before + 2, REAPED_S_MAX)
