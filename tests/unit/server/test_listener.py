"""The door: how many are let in, what all of them together may hold, and how it closes."""

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


def test_more_connections_than_there_may_be_are_closed_and_there_is_room_again_when_one_goes() -> None:
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


def test_strangers_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with Shell() as shell:
        for _ in range(50):
            with shell.connect() as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert is_hung_up_on(stranger)
        assert shell.services.probe.protocol_errors == 50
    told = [record for record in caplog.records if "closing a connection" in record.getMessage()]
    assert 1 <= len(told) < 25
    assert told[0].levelno == logging.WARNING


def test_answers_that_nobody_takes_leave_little_for_the_others_at_once() -> None:
    """Not only after the next look at the connections, by which time any number of clients may have asked."""
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
        unsent = sum(shell.call(one._transport.get_write_buffer_size) for one in shell.connections())
        # What is above the bound are first batches, without which a reader would get nowhere.
        assert unsent <= 6 * MIB + 30 * 256 * KIB
        for client in clients:
            client.close()
        shell.until(lambda: not shell.broker.listener.connections)
        assert shell.services.unsent_bytes == 0


def test_answers_to_many_who_are_woken_at_once_are_bounded_too() -> None:
    """A hundred fetches of one connection, none of which could be answered when it came."""
    network = {"answers_bytes_max": 4 * MIB, "fetch_bytes_max": MIB}
    with Shell({"network": network}) as shell, shell.connect(receive_buffer_bytes=4096) as slow:
        shell.create("t")
        poll = request_frame(fetch_request("t", wait_ms=LONG_MS, min_bytes=900 * KIB), FETCH_VERSION)
        slow.sendall(100 * poll)
        shell.until(lambda: len(shell.services.fetch_waits) == 100)
        (connection,) = shell.connections()
        shell.call(
            lambda: connection._transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * KIB
            )
        )
        with closing(shell.client()) as producer:
            for _ in range(40):
                producer.request(produce_request("t", batch_of(25 * KIB)), ProduceResponse, PRODUCE_VERSION)
        shell.until(lambda: len(shell.services.fetch_waits) == 0)
        shell.until(lambda: not connection._turns and not connection._out)
        # It takes three turns until what was read is seen to be stuck; those who are woken later get little.
        woken = 3 * 8
        unsent = shell.call(connection._transport.get_write_buffer_size)
        assert unsent <= 4 * MIB + woken * MIB + (100 - woken) * 64 * KIB


def test_a_stop_answers_what_was_begun_and_leaves_the_rest() -> None:
    files = HeldFiles(MemoryFiles())
    with Shell(files=files) as shell, shell.connect() as client, shell.connect() as idle:
        shell.create("t")
        files.hold()
        client.sendall(b"".join(request_frame(produce_request("t", batch_of()), 12, number) for number in range(3)))
        client.sendall(request_frame(fetch_request("t", wait_ms=LONG_MS), FETCH_VERSION, 3))
        shell.until(lambda: len(shell.services.fetch_waits) == 1)
        stopping = shell.begin_stop()
        assert is_hung_up_on(idle)
        with pytest.raises(ConnectionRefusedError):
            shell.connect()
        files.release()
        assert [correlation_id_of(receive_frame(client)) for _ in range(4)] == [0, 1, 2, 3]
        assert is_hung_up_on(client)
        stopping.result(5)


def test_a_stop_hangs_up_on_those_who_do_not_take_their_answers(caplog: pytest.LogCaptureFixture) -> None:
    with Shell({"network": {"stop_ms": 100}}) as shell, shell.connect(receive_buffer_bytes=4096) as slow:
        shell.create("t")
        with closing(shell.client()) as producer:
            for _ in range(12):
                producer.request(produce_request("t", batch_of(MIB - 100)), ProduceResponse, PRODUCE_VERSION)
        slow.sendall(request_frame(fetch_request("t"), FETCH_VERSION))
        shell.until(lambda: shell.services.probe.requests["Fetch", FETCH_VERSION] == 1)
        with caplog.at_level(logging.WARNING):
            shell.stop()
        assert "hanging up on 1 connections" in caplog.text


def test_a_stop_waits_for_what_clients_asked_for_that_have_gone() -> None:
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


def test_a_stop_gives_up_on_what_takes_too_long() -> None:
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
