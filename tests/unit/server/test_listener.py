"""The listener: limits of connections and of the memory they share, and its shutdown."""

import logging
import socket
from contextlib import ExitStack, closing

import pytest

from logbrook.protocol.messages.api_versions import ApiVersionsRequest
from logbrook.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from logbrook.protocol.messages.produce import ProduceResponse
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing import MemoryFiles
from logbrook.testing.processes import free_port
from tests.unit.server.shell_kit import (
    FETCH_VERSION,
    KIB,
    MIB,
    PRODUCE_VERSION,
    HeldFiles,
    Shell,
    batch_of,
    correlation_id_of,
    fetch_request,
    is_hung_up_on,
    produce_request,
    receive_frame,
    request_frame,
    until,
)

LONG_MS = 600_000


def versions_frame(correlation_id: int) -> bytes:
    return request_frame(ApiVersionsRequest(), 3, correlation_id)


def is_served(connected: socket.socket) -> bool:
    try:
        connected.sendall(versions_frame(7))
        return correlation_id_of(receive_frame(connected)) == 7
    except (EOFError, ConnectionError):
        return False


def test_connections_above_the_limit_are_closed_until_one_disconnects() -> None:
    with Shell({"network": {"connections_max": 16}}) as shell, ExitStack() as stack:
        clients = [stack.enter_context(shell.connect()) for _ in range(16)]
        assert all(map(is_served, clients))
        with shell.connect() as refused:
            assert is_hung_up_on(refused)
        probe = shell.services.probe
        assert (probe.connections_accepted, probe.connections_refused) == (16, 1)
        clients[0].close()
        shell.until(lambda: len(shell.broker.listener.connections) == 15)
        with shell.connect() as another:
            assert is_served(another)
        assert all(map(is_served, clients[1:]))


def test_a_suspended_listener_refuses_connections_until_it_resumes() -> None:
    # A port that the kernel assigns to no other process meanwhile.
    with Shell({"network": {"listen": f"127.0.0.1:{free_port()}"}}) as shell:
        listener = shell.broker.listener
        with shell.connect() as client:
            assert is_served(client)
            shell.call(listener.suspend)
            assert is_hung_up_on(client)
        with pytest.raises(ConnectionRefusedError):
            shell.connect()
        shell.run(listener.resume())
        with shell.connect() as client:
            assert is_served(client)
        shell.call(listener.suspend)


def test_repeated_protocol_errors_are_logged_at_a_bounded_rate(caplog: pytest.LogCaptureFixture) -> None:
    with Shell() as shell:
        for _ in range(50):
            with shell.connect() as peer:
                peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert is_hung_up_on(peer)
        assert shell.services.probe.protocol_errors == 50
    logged = [record for record in caplog.records if record.getMessage().startswith("invalid request ")]
    assert 1 <= len(logged) < 25
    assert logged[0].levelno == logging.WARNING


@pytest.mark.parametrize(
    ("limit", "sent", "reason"),
    [("connection_first_request_ms", b"", "silent"), ("connection_stalled_ms", b"\0\0\1\0\0\x12\0\0", "stalled")],
)
def test_disconnected_clients_are_logged_at_a_bounded_rate(
    limit: str, sent: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Shell({"network": {limit: 200}}) as shell, ExitStack() as stack:
        clients = [stack.enter_context(shell.connect()) for _ in range(50)]
        for client in clients:
            client.sendall(sent)
        assert all(is_hung_up_on(client) for client in clients)
        assert shell.services.probe.connections_reaped == 50
    lines = [line for line in caplog.messages if line.startswith("connection closed ")]
    assert 1 <= len(lines) < 25
    assert f"reason='{reason}'" in lines[0]


def test_failed_requests_without_acks_are_logged_at_a_bounded_rate(caplog: pytest.LogCaptureFixture) -> None:
    """Their clients connect again at once, and repeat them."""
    caplog.set_level(logging.INFO)
    frame = request_frame(produce_request("nobody", batch_of(), acks=0), PRODUCE_VERSION)
    with Shell() as shell:
        for _ in range(50):
            with shell.connect() as peer:
                peer.sendall(frame)
                assert is_hung_up_on(peer)
    logged = [record for record in caplog.records if record.getMessage().startswith("connection closed by handler ")]
    assert 1 <= len(logged) < 25
    assert logged[0].levelno == logging.WARNING


def test_unread_responses_reduce_the_memory_of_other_fetches_at_once() -> None:
    """The limit applies at once, not after the next check of the connections, before which many requests may arrive."""
    network = {"answers_bytes_max": 4 * MIB, "fetch_bytes_max": 2 * MIB}
    with Shell({"network": network}) as shell, ExitStack() as stack:
        shell.create("t")
        with closing(shell.client()) as producer:
            for _ in range(12):
                batches = build_batch([Record(value=bytes(250 * KIB))])
                producer.request(produce_request("t", batches), ProduceResponse, PRODUCE_VERSION)
        clients = [stack.enter_context(shell.connect(receive_buffer_bytes=4096)) for _ in range(30)]
        until(lambda: len(shell.connections()) == 30)
        shell.call(shell.broker.listener._sweeper.cancel)  # type: ignore[union-attr]
        for connection in shell.connections():
            connected = connection._transport.get_extra_info("socket")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * KIB)
        for client in clients:
            client.sendall(request_frame(fetch_request("t"), FETCH_VERSION))
        shell.until(lambda: shell.services.probe.requests["Fetch", FETCH_VERSION] == 30)
        unsent = sum(shell.call(connection._transport.get_write_buffer_size) for connection in shell.connections())
        # The response that reaches the bound may exceed it by its first batch.
        assert unsent <= 4 * MIB + 256 * KIB
        assert shell.services.response_memory.used_bytes <= 4 * MIB + 256 * KIB
        for client in clients:
            client.close()
        shell.until(lambda: not shell.broker.listener.connections)
        assert shell.services.response_memory.used_bytes == 0


def test_responses_of_many_fetches_woken_at_once_are_bounded_too() -> None:
    """A hundred fetches of one connection, none of which could be answered when it arrived."""
    network = {"answers_bytes_max": 4 * MIB, "fetch_bytes_max": MIB}
    with Shell({"network": network}) as shell, shell.connect(receive_buffer_bytes=4096) as slow:
        shell.create("t")
        poll = request_frame(fetch_request("t", wait_ms=LONG_MS, min_bytes=900 * KIB), FETCH_VERSION)
        slow.sendall(100 * poll)
        shell.until(lambda: len(shell.services.fetch_purgatory) == 100)
        (connection,) = shell.connections()
        shell.call(
            lambda: connection._transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * KIB
            )
        )
        with closing(shell.client()) as producer:
            for _ in range(40):
                producer.request(produce_request("t", batch_of(25 * KIB)), ProduceResponse, PRODUCE_VERSION)
        shell.until(lambda: shell.services.response_memory.is_exhausted and not shell.services.fetch_purgatory._woken)
        assert shell.services.response_memory.used_bytes <= 4 * MIB + 30 * KIB
        assert shell.call(connection._transport.get_write_buffer_size) <= 4 * MIB + 30 * KIB


def test_responses_that_wait_for_an_earlier_one_are_bounded_too() -> None:
    """Each connection first sends a request that is not answered, then fetches, whose responses have to wait."""
    network = {"answers_bytes_max": 4 * MIB, "fetch_bytes_max": MIB}
    with Shell({"network": network}) as shell, ExitStack() as stack:
        shell.create("t")
        shell.create("empty")
        with closing(shell.client()) as producer:
            for _ in range(4):
                producer.request(produce_request("t", batch_of(250 * KIB)), ProduceResponse, PRODUCE_VERSION)
        frames = request_frame(fetch_request("empty", wait_ms=LONG_MS), FETCH_VERSION, 1)
        frames += request_frame(fetch_request("t"), FETCH_VERSION, 2) * 8
        clients = [stack.enter_context(shell.connect()) for _ in range(4)]
        for client in clients:
            client.sendall(frames)
        memory = shell.services.response_memory
        shell.until(
            lambda: memory.is_scarce and not any(connection._is_reading for connection in shell.connections_now())
        )
        assert memory.used_bytes <= 4 * MIB + 256 * KIB
        with closing(shell.client()) as producer:
            producer.request(produce_request("empty", batch_of()), ProduceResponse, PRODUCE_VERSION)
        for client in clients:
            assert [correlation_id_of(receive_frame(client)) for _ in range(9)] == [1] + 8 * [2]
        shell.until(lambda: memory.used_bytes == 0)


def test_a_fetch_waits_for_memory_and_then_gets_its_records() -> None:
    with Shell({"network": {"answers_bytes_max": 4 * MIB}}) as shell, shell.connect() as client:
        shell.create("t")
        with closing(shell.client()) as producer:
            producer.request(produce_request("t", batch_of()), ProduceResponse, PRODUCE_VERSION)
        memory = shell.services.response_memory
        memory.used_bytes += 4 * MIB
        client.sendall(request_frame(fetch_request("t", wait_ms=LONG_MS), FETCH_VERSION))
        shell.until(lambda: len(shell.services.fetch_purgatory) == 1)
        memory.used_bytes -= 4 * MIB
        assert len(receive_frame(client)) > len(batch_of())


def test_a_stop_answers_started_requests_only() -> None:
    files = HeldFiles(MemoryFiles())
    with Shell(files=files) as shell, shell.connect() as client, shell.connect() as idle:
        shell.create("t")
        files.hold()
        client.sendall(b"".join(request_frame(produce_request("t", batch_of()), 12, number) for number in range(3)))
        client.sendall(request_frame(fetch_request("t", wait_ms=LONG_MS), FETCH_VERSION, 3))
        shell.until(lambda: len(shell.services.fetch_purgatory) == 1)
        stopping = shell.begin_stop()
        assert is_hung_up_on(idle)
        with pytest.raises(ConnectionRefusedError):
            shell.connect()
        files.release()
        assert [correlation_id_of(receive_frame(client)) for _ in range(4)] == [0, 1, 2, 3]
        assert is_hung_up_on(client)
        stopping.result(5)


def test_a_stop_disconnects_clients_that_do_not_read_their_responses(caplog: pytest.LogCaptureFixture) -> None:
    with Shell({"network": {"stop_ms": 100}}) as shell, shell.connect(receive_buffer_bytes=4096) as slow:
        shell.create("t")
        with closing(shell.client()) as producer:
            for _ in range(12):
                producer.request(produce_request("t", batch_of(MIB - 100)), ProduceResponse, PRODUCE_VERSION)
        slow.sendall(request_frame(fetch_request("t"), FETCH_VERSION))
        shell.until(lambda: shell.services.probe.requests["Fetch", FETCH_VERSION] == 1)
        with caplog.at_level(logging.WARNING):
            shell.stop()
        assert "connections aborted at stop connections=1" in caplog.text


def test_a_stop_waits_for_requests_of_disconnected_clients() -> None:
    files = HeldFiles(MemoryFiles())
    with Shell(files=files) as shell:
        files.hold()
        with shell.connect() as client:
            topics = [CreatableTopic(name="orphan", num_partitions=20, replication_factor=1)]
            client.sendall(request_frame(CreateTopicsRequest(topics=topics), 7))
            until(lambda: files.waiting)
        shell.until(lambda: not shell.broker.listener.connections)
        stopping = shell.begin_stop()
        shell.call(lambda: None)
        assert not stopping.done()
        files.release()
        stopping.result(5)
        assert "orphan" in shell.services.topics.metadata.topics
        assert len(shell.broker.directory) == 21


def test_a_stop_cancels_requests_that_take_too_long() -> None:
    files = HeldFiles(MemoryFiles())
    with Shell({"network": {"stop_ms": 50}}, files=files) as shell, shell.connect() as client:
        files.hold()
        client.sendall(
            request_frame(
                CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]), 7
            )
        )
        until(lambda: files.waiting)
        stopping = shell.begin_stop()
        assert is_hung_up_on(client)
        files.release()
        stopping.result(5)
