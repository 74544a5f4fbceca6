"""A connection of the JSON listener: order, invalid frames, limits and timeouts."""

import json
import socket
from collections.abc import Iterable
from contextlib import ExitStack

import pytest

from logbrook.protocol.json_frames import RequestType
from logbrook.protocol.messages.api_versions import ApiVersionsRequest
from logbrook.server.json.connection import JsonConnection
from logbrook.testing import MemoryFiles
from tests.unit.server.json.json_kit import ERROR, JSON_NETWORK, JsonPeer, frame_of, json_peer, json_shell
from tests.unit.server.shell_kit import KIB, MIB, HeldFiles, Shell, is_hung_up_on, receive_frame, request_frame

LONG_MS = 600_000
PING = frame_of(RequestType.PING)


def test_answers_come_in_the_order_of_the_requests(shell: Shell, peer: JsonPeer, topic: str) -> None:
    peer.send(RequestType.FETCH, topic=topic, partition=0, offset=0, max_wait_ms=LONG_MS, id="wait")
    for number in range(20):
        peer.send(RequestType.PING, id=number)
    with json_peer(shell) as other:
        shell.until(lambda: len(shell.services.fetch_purgatory) == 1)
        other.produce(topic, "v")
    assert [peer.receive().fields["id"] for _ in range(21)] == ["wait", *range(20)]


@pytest.mark.parametrize(
    "frame",
    [
        frame_of(0),
        frame_of(11, {}),
        frame_of(255, {}),
        frame_of(RequestType.PING, b"{"),
        frame_of(RequestType.PING, b"[]"),
        frame_of(RequestType.PING, b"\xff\xfe"),
        frame_of(RequestType.PING, b"[" * 100_000),
        frame_of(RequestType.PING, {"unknown": 1}),
        frame_of(RequestType.PING, {"id": [1]}),
        frame_of(RequestType.DESCRIBE_TOPIC, {"topic": "\ud800"}),
        frame_of(RequestType.DESCRIBE_TOPIC, {}),
        frame_of(RequestType.CREATE_TOPIC, {"topic": "new", "settings": {"\ud800": "\ud800"}}),
    ],
    ids=lambda frame: repr(frame[4:30]),
)
def test_a_bad_request_is_refused_and_the_connection_stays_open(peer: JsonPeer, frame: bytes) -> None:
    peer.socket.sendall(frame + PING)
    kind, fields = peer.receive()
    assert (kind, fields["error"], fields["retriable"]) == (ERROR, "InvalidRequest", False)
    assert fields["message"]
    assert peer.receive().fields == {"pong": True}


@pytest.mark.parametrize(
    "noise",
    [
        b"\0\0\0\0",
        b"\0\0\0\0" + b"x" * MIB,
        b"\xff\xff\xff\xff\1",
        b"GET / HTTP/1.1\r\nHost: logbrook\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        (64 * MIB).to_bytes(4, "big") + b"\1" + b"x" * 100_000,
    ],
    ids=lambda noise: repr(noise[:10]),
)
def test_an_invalid_frame_is_reported_after_all_responses_and_closes_the_connection(
    shell: Shell, peer: JsonPeer, topic: str, noise: bytes
) -> None:
    before = shell.services.probe.protocol_errors
    produce = frame_of(RequestType.PRODUCE, {"topic": topic, "partition": 0, "records": [{"value": "v"}]})
    # Some random bytes are too short to be parsed; one more byte completes the frame.
    peer.socket.sendall(produce + PING + noise + b"\1")
    assert peer.receive().fields["base_offset"] == 0
    assert peer.receive().fields == {"pong": True}
    kind, fields = peer.receive()
    assert (kind, fields["error"], fields["request"]) == (ERROR, "BrokenFrame", None)
    with pytest.raises(EOFError):
        peer.receive()
    assert shell.services.probe.protocol_errors == before + 1
    peer.socket.close()
    shell.until(lambda: not shell.broker.listener.connections)


def test_a_client_that_keeps_sending_after_an_invalid_frame_is_disconnected(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logbrook.server.json.connection._LINGER_S", 0.05)
    with json_peer(shell) as peer:
        peer.socket.sendall(b"\0\0\0\0\0")
        assert peer.receive().kind == ERROR
        shell.until(lambda: not shell.broker.listener.connections)


def test_a_stop_does_not_wait_for_connections_with_broken_frames() -> None:
    with json_shell() as shell, json_peer(shell) as peer:
        peer.socket.sendall(b"\0\0\0\0\0")
        assert peer.receive().kind == ERROR
        shell.stop()
        assert is_hung_up_on(peer.socket)


def test_a_half_closed_connection_gets_its_responses() -> None:
    files = HeldFiles(MemoryFiles())
    with Shell({"network": JSON_NETWORK}, files=files) as shell, json_peer(shell) as peer:
        shell.create("t")
        files.hold()
        peer.send(RequestType.PRODUCE, topic="t", partition=0, records=[{"value": "v"}])
        peer.socket.sendall(PING)
        peer.socket.shutdown(socket.SHUT_WR)
        shell.until(lambda: [connection._is_client_done for connection in shell.connections_now()] == [True])  # type: ignore[attr-defined]
        files.release()
        assert peer.receive().fields["base_offset"] == 0
        assert peer.receive().fields == {"pong": True}
        assert is_hung_up_on(peer.socket)
        shell.until(lambda: not shell.broker.listener.connections)


def test_a_half_closed_connection_may_read_a_large_response_slowly() -> None:
    with json_shell() as shell, json_peer(shell, receive_buffer_bytes=4 * KIB) as peer:
        shell.create("t")
        for _ in range(8):
            peer.produce("t", "x" * 1000 * KIB)
        peer.send(RequestType.FETCH, topic="t", partition=0, offset=0, max_bytes=16 * MIB)
        peer.socket.shutdown(socket.SHUT_WR)
        (connection,) = shell.connections()
        assert isinstance(connection, JsonConnection)
        shell.until(connection._transport.is_closing)
        # The timer that would close the connection is cancelled.
        assert connection._lingering is not None
        assert connection._lingering.cancelled()
        assert len(peer.receive().fields["records"]) == 8


def test_connections_of_both_listeners_share_their_limit() -> None:
    with json_shell(connections_max=16) as shell, ExitStack() as stack:
        kafka = [stack.enter_context(shell.connect()) for _ in range(8)]
        peers = [stack.enter_context(json_peer(shell)) for _ in range(8)]
        ping_all(kafka, peers)
        with json_peer(shell) as refused:
            assert is_hung_up_on(refused.socket)
        with shell.connect() as other:
            assert is_hung_up_on(other)
        assert shell.services.probe.connections_refused == 2
        ping_all(kafka, peers)


def ping_all(kafka: Iterable[socket.socket], peers: Iterable[JsonPeer]) -> None:
    for peer in peers:
        peer.ask(RequestType.PING)
    for connection in kafka:
        connection.sendall(request_frame(ApiVersionsRequest(), 3))
        receive_frame(connection)


def test_the_requests_in_flight_of_a_client_are_bounded(shell: Shell) -> None:
    with json_shell(in_flight_requests_max=4) as small, json_peer(small) as peer:
        small.create("t")
        for _ in range(10):
            peer.send(RequestType.FETCH, topic="t", partition=0, offset=0, max_wait_ms=LONG_MS)
        (connection,) = small.broker.listener.connections
        small.until(lambda: len(small.services.fetch_purgatory) == 1)
        assert len(connection._pending) == 4
        with json_peer(small) as other:
            other.produce("t", "v")
        assert all(peer.receive().fields["records"] for _ in range(10))


def test_a_client_that_does_not_read_its_responses_is_disconnected() -> None:
    with json_shell(connection_stalled_ms=200, in_flight_bytes_max=MIB) as shell:
        shell.create("t")
        with json_peer(shell) as good:
            good.produce("t", *["x" * 100 * KIB] * 9)
            with json_peer(shell, receive_buffer_bytes=4 * KIB) as slow:
                wanted = frame_of(RequestType.FETCH, {"topic": "t", "partition": 0, "offset": 0})
                slow.socket.sendall(wanted * 100)
                # Requests in flight are bounded by the responses that the client reads; it is disconnected when it
                # reads none.
                shell.until(lambda: shell.services.probe.connections_reaped == 1)
                assert good.ask(RequestType.PING) == {"pong": True}


def test_a_partial_frame_times_out() -> None:
    with json_shell(connection_stalled_ms=100) as shell, json_peer(shell) as peer:
        peer.socket.sendall(PING + PING[:3])
        assert peer.receive().fields == {"pong": True}
        assert is_hung_up_on(peer.socket)
        assert shell.services.probe.connections_reaped == 1


def test_the_setting_limits_the_size_of_a_frame() -> None:
    with json_shell(json_request_bytes_max=2 * KIB) as shell, json_peer(shell) as peer:
        spare = 2 * KIB - 1 - len(json.dumps({"id": 1, "prefix": ""}))
        assert peer.ask(RequestType.METRICS_FETCH, id=1, prefix="x" * spare) == {"id": 1, "metrics": {}}
        peer.socket.sendall((2 * KIB + 1).to_bytes(4, "big") + b"\1")
        assert peer.receive().fields["error"] == "BrokenFrame"


def test_a_request_is_completed_after_its_client_has_disconnected(shell: Shell) -> None:
    with json_peer(shell) as peer:
        peer.send(RequestType.CREATE_TOPIC, topic="left-behind", partition_count=20)
        shell.until(lambda: "left-behind" in shell.services.topics.metadata.topics)
    shell.until(lambda: len([log for log in shell.broker.directory if log.partition.topic == "left-behind"]) == 20)


def test_a_bug_closes_only_the_connection_of_its_client(
    shell: Shell, peer: JsonPeer, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    with json_peer(shell) as other:
        assert other.ask(RequestType.PING)
        (dispatcher,) = {connection._dispatcher for connection in shell.connections()}
        good = dispatcher._handlers[RequestType.PING]  # type: ignore[attr-defined]
        shell.call(lambda: dispatcher._handlers.update({RequestType.PING: fails}))  # type: ignore[attr-defined]
        other.send(RequestType.PING)
        assert is_hung_up_on(other.socket)
        shell.call(lambda: dispatcher._handlers.update({RequestType.PING: good}))  # type: ignore[attr-defined]
    assert peer.ask(RequestType.PING) == {"pong": True}
    assert "request handler failed api='JsonPing' peer='127.0.0.1'" in caplog.text


def test_there_is_no_json_listener_unless_it_is_asked_for() -> None:
    with Shell() as shell:
        assert shell.broker.json_address is None


def test_an_address_that_is_taken_keeps_the_broker_from_starting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match=address), json_shell(json_listen=address):
            pass
