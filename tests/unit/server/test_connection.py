"""A client connection: order, limits, timeouts, and clean-up."""

import asyncio
import gc
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from logbrook.config.network import DEFAULT_LISTENER
from logbrook.model import TopicPartition
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from logbrook.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from logbrook.protocol.messages.fetch import FetchResponse
from logbrook.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from logbrook.protocol.messages.metadata import MetadataRequest
from logbrook.protocol.messages.produce import ProduceResponse
from logbrook.server.api import Api, DeferredResponse
from logbrook.server.connection import ServerConnection
from logbrook.server.peer_progress import ConnectionTimeouts
from logbrook.testing import MemoryFiles
from tests.unit.server.coordinators.kit import pending_replies
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
VERSIONS_VERSION = 3
METADATA_VERSION = 12


@pytest.fixture
def shell() -> Iterator[Shell]:
    with Shell() as shell:
        shell.create("t")
        yield shell


@pytest.fixture
def held() -> Iterator[tuple[Shell, HeldFiles]]:
    """A broker whose commits can be held back."""
    files = HeldFiles(MemoryFiles())
    # Large enough for everything that is not synced: creating a file of the write-ahead log takes a sync too.
    with Shell({"storage": {"wal_file_bytes": 4 * MIB}}, files=files) as shell:
        shell.create("t")
        yield shell, files
        files.release()


def versions_frame(correlation_id: int) -> bytes:
    return request_frame(ApiVersionsRequest(), VERSIONS_VERSION, correlation_id)


def produce_frame(correlation_id: int, size: int = 100, acks: int = -1) -> bytes:
    return request_frame(produce_request("t", batch_of(size), acks=acks), PRODUCE_VERSION, correlation_id)


def poll_frame(correlation_id: int, offset: int = 0, topic: str = "t", **how: Any) -> bytes:
    """Return a fetch with a long wait."""
    message = fetch_request(topic, offset, wait_ms=LONG_MS, **how)
    return request_frame(message, FETCH_VERSION, correlation_id)


def answered(connected: socket.socket, count: int) -> list[int]:
    return [correlation_id_of(receive_frame(connected)) for _ in range(count)]


def reset(connected: socket.socket) -> None:
    """Close the connection with a reset, as a crash does."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connected.close()


# Order of responses


def test_answers_come_in_the_order_of_the_requests_though_they_finish_in_another(shell: Shell) -> None:
    with shell.connect() as first, shell.connect() as other:
        metadata = request_frame(MetadataRequest(topics=None), METADATA_VERSION, 2)
        connections = shell.connections_now
        first.sendall(poll_frame(1) + metadata + versions_frame(3))
        shell.until(
            lambda: sum(response.is_done for connection in connections() for response in connection._pending) == 2
        )
        other.sendall(produce_frame(9))
        assert answered(first, 3) == [1, 2, 3]


def test_produce_requests_that_are_sent_together_share_their_commits(held: tuple[Shell, HeldFiles]) -> None:
    shell, files = held
    files.hold()
    syncs = files.syncs
    with shell.connect() as client:
        client.sendall(b"".join(produce_frame(number) for number in range(50)))
        shell.until(lambda: shell.log("t").log_end_offset == 50)
        files.release()
        assert answered(client, 50) == list(range(50))
    assert files.syncs - syncs <= 2


# Limits


def test_a_connection_at_its_limit_of_requests_in_flight_pauses_reading() -> None:
    with Shell({"network": {"in_flight_requests_max": 4}}) as shell, shell.connect() as client:
        shell.create("t")
        client.sendall(b"".join(poll_frame(number) for number in range(10)))
        shell.until(lambda: len(shell.services.fetch_purgatory) == 4)
        (connection,) = shell.connections()
        assert not connection._is_reading
        with shell.connect() as other:
            other.sendall(produce_frame(99))
            assert answered(client, 10) == list(range(10))
        shell.until(lambda: connection._is_reading)


def test_a_connection_at_its_limit_of_bytes_in_flight_pauses_reading() -> None:
    files = HeldFiles(MemoryFiles())
    with Shell({"network": {"in_flight_bytes_max": 64 * KIB}}, files=files) as shell, shell.connect() as client:
        shell.create("t")
        files.hold()
        client.setblocking(False)
        frames = b"".join(produce_frame(number, 40_000) for number in range(1_000))
        sent = [0]

        def is_stuck() -> bool:
            before = sent[0]
            try:
                sent[0] += client.send(frames[sent[0] :])
            except BlockingIOError:
                return shell.call(lambda: not connection._is_reading)
            return sent[0] == before

        (connection,) = shell.connections()
        until(is_stuck)
        # Started requests may exceed the limit by one request, and received bytes by one read.
        assert shell.log("t").log_end_offset == 2
        assert connection._in_flight_bytes < 64 * KIB + 41_000
        assert sum(map(len, connection._queue)) + connection._reader.held_bytes < 600 * KIB
        files.release()
        client.settimeout(20)
        count = sent[0] // len(frames) * 1_000 + sent[0] % len(frames) // (len(frames) // 1_000)
        assert answered(client, count) == list(range(count))


def test_the_memory_of_a_request_is_released_before_its_response_is_sent(shell: Shell) -> None:
    pool = shell.broker.listener.receive_buffers.pool
    with shell.connect() as client:
        client.sendall(poll_frame(0, min_bytes=2**30))
        shell.until(lambda: len(shell.services.fetch_purgatory) == 1)
        client.sendall(b"".join(produce_frame(number, 600_000) for number in range(1, 11)))
        shell.until(lambda: shell.log("t").high_watermark == 10)
        (connection,) = shell.connections()
        shell.until(lambda: sum(turn.is_done for turn in connection._pending) == 10)
        assert shell.call(lambda: connection._in_flight_bytes) < 10_000
        # A buffer is returned with the last view of its request; the commit thread may release the last ones later.
        shell.until(lambda: not pool._buffers._lent)
        assert pool._buffers._free, "requests of this size are received into buffers of the pool"


def test_unacknowledged_requests_are_bounded_too(held: tuple[Shell, HeldFiles]) -> None:
    shell, files = held
    files.hold()
    with shell.connect() as client:
        client.sendall(b"".join(produce_frame(number, acks=0) for number in range(500)))
        (connection,) = shell.connections()
        shell.until(lambda: not connection._is_reading)
        assert shell.call(lambda: len(connection._pending)) == shell.config.network.in_flight_requests_max
        files.release()
        shell.until(lambda: shell.log("t").high_watermark == 500)
        client.sendall(versions_frame(7))
        assert answered(client, 1) == [7]


def test_connections_that_wait_for_memory_continue_one_after_the_other() -> None:
    network = {"received_bytes_max": MIB, "connection_stalled_ms": 400}
    with Shell({"network": network, "log": {"max_message_bytes": 4 * MIB}}) as shell:
        shell.create("t")
        frame = produce_frame(1, 900_000)
        clients = [shell.connect() for _ in range(6)]
        for client in clients:
            client.sendall(frame[:600_000])
        listener = shell.broker.listener
        shell.until(lambda: listener.receive_memory.held_bytes >= MIB and listener.receive_memory.waiting)
        for client in clients:
            client.sendall(frame[600_000:])
        for client in clients:
            assert answered(client, 1) == [1]
            client.close()
        shell.until(lambda: not listener.connections)
        assert (listener.receive_memory.held_bytes, listener.receive_memory.waiting) == (0, {})


def test_a_client_with_pipelined_requests_exceeds_its_share_of_memory_for_one_of_them_only() -> None:
    network = {"received_bytes_max": MIB}
    with Shell({"network": network, "log": {"max_message_bytes": 4 * MIB}}) as shell:
        shell.create("t")
        frame, next_frame = produce_frame(1, 900_000), produce_frame(2, 900_000)
        memory = shell.broker.listener.receive_memory
        with shell.connect() as first, shell.connect() as second:
            shell.until(lambda: len(shell.broker.listener.connections) == 2)
            for client in (first, second):
                # Its memory is for some more bytes, and does not exceed its share.
                client.sendall(frame[:4_000])
            shell.until(lambda: all(connection.held_bytes for connection in shell.broker.listener.connections))
            first.sendall(frame[4_000:600_000])
            shell.until(lambda: any(connection.is_exempt for connection in shell.broker.listener.connections))
            second.sendall(frame[4_000:600_000])
            shell.until(lambda: memory.waiting)
            first.sendall(frame[600_000:] + next_frame[:300_000])
            assert answered(first, 1) == [1]
            second.sendall(frame[600_000:])
            assert answered(second, 1) == [1]
            first.sendall(next_frame[300_000:])
            assert answered(first, 1) == [2]


# Timeouts


def test_a_slow_reader_holds_bounded_memory_and_is_disconnected() -> None:
    network = {"connection_stalled_ms": 200, "in_flight_bytes_max": 4 * MIB, "fetch_bytes_max": 2 * MIB}
    with Shell({"network": network}) as shell, shell.connect(receive_buffer_bytes=4096) as client:
        shell.create("t")
        with closing(shell.client()) as producer:
            for _ in range(20):
                producer.request(produce_request("t", batch_of(MIB - 100)), ProduceResponse, PRODUCE_VERSION)
        until(lambda: len(shell.connections()) == 1)
        (connection,) = shell.connections()
        fetch = request_frame(fetch_request("t"), FETCH_VERSION)
        client.sendall(100 * fetch)
        shell.until(lambda: not connection._output.is_writable)
        assert shell.call(connection._transport.get_write_buffer_size) <= 6 * MIB
        shell.until(lambda: shell.services.probe.connections_reaped == 1)
        shell.until(lambda: not shell.broker.listener.connections)


def test_a_slow_reader_is_disconnected_even_with_few_unread_bytes() -> None:
    with Shell({"network": {"connection_stalled_ms": 200}}) as shell, shell.connect(receive_buffer_bytes=4096) as slow:
        shell.create("t")
        with closing(shell.client()) as producer:
            producer.request(produce_request("t", batch_of(200_000)), ProduceResponse, PRODUCE_VERSION)
        until(lambda: len(shell.connections()) == 1)
        (connection,) = shell.connections()
        transport = connection._transport
        shell.call(lambda: transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * KIB))
        slow.sendall(request_frame(fetch_request("t"), FETCH_VERSION))
        shell.until(lambda: transport.get_write_buffer_size() > 0)
        assert connection._output.is_writable
        shell.until(lambda: shell.services.probe.connections_reaped == 1)


def test_a_slow_writer_is_disconnected_even_if_it_sends_single_bytes() -> None:
    with Shell({"network": {"connection_stalled_ms": 200}}) as shell, shell.connect() as client:
        client.sendall(produce_frame(1, 50_000)[:1_000])

        def is_hung_up() -> bool:
            try:
                client.sendall(b"\x00")
            except ConnectionError:
                return True
            return False

        with closing(shell.client()) as busy:
            until(lambda: busy.request(ApiVersionsRequest(), ApiVersionsResponse, 3) and is_hung_up())
        assert shell.services.probe.connections_reaped == 1


def test_an_idle_client_is_disconnected() -> None:
    with Shell({"network": {"connection_idle_ms": 200}}) as shell, shell.connect() as client:
        client.sendall(versions_frame(1))
        assert answered(client, 1) == [1]
        assert is_hung_up_on(client)
        assert shell.services.probe.connections_reaped == 1


SHORT = ConnectionTimeouts(first_request_s=0.3, idle_s=0.3, stalled_s=0.2)
LONG = ConnectionTimeouts(first_request_s=30.0, idle_s=600.0, stalled_s=30.0)


def look_no_more(shell: Shell) -> None:
    """Stop the periodic check of connections, so that the test can call it at chosen times."""

    def cancel() -> None:
        sweeper = shell.broker.listener._sweeper
        assert sweeper is not None
        sweeper.cancel()

    shell.call(cancel)


def test_a_client_that_waits_for_its_answer_is_not_idle_nor_just_after_it() -> None:
    with Shell({"network": {"connection_idle_ms": 300}}) as shell, shell.connect() as client:
        shell.create("t")
        message = fetch_request("t", wait_ms=280)
        # It sends the next request after the response; both together take longer than the idle timeout.
        for number in range(4):
            client.sendall(request_frame(message, FETCH_VERSION, number))
            assert answered(client, 1) == [number]
        (connection,) = shell.connections()
        look_no_more(shell)
        now_s = shell.call(connection._loop.time)
        client.sendall(poll_frame(5))
        shell.until(lambda: len(shell.services.fetch_purgatory) == 1)
        for late_s in (0.2, 0.5, 10.0):
            assert shell.call(lambda late_s=late_s: connection.check(now_s + late_s, SHORT)) is None  # type: ignore[misc]
        with closing(shell.client()) as producer:
            producer.request(produce_request("t", batch_of()), ProduceResponse, PRODUCE_VERSION)
        assert answered(client, 1) == [5]
        # The client has had no time to send another request.
        assert shell.call(lambda: connection.check(now_s + 10.1, SHORT)) is None
        assert shell.call(lambda: connection.check(now_s + 10.4, SHORT)) == "idle"


def test_a_client_that_makes_progress_is_never_stalled(shell: Shell) -> None:
    with shell.connect() as client:
        frame = produce_frame(1, 800_000)
        (connection,) = shell.connections()
        look_no_more(shell)
        sent = 0
        for now_s in range(0, 10 * 3, 3):
            client.sendall(frame[sent : sent + 70_000])
            sent += 70_000
            shell.until(lambda sent=sent: connection._received_bytes == sent)  # type: ignore[misc]
            assert shell.call(lambda now_s=now_s: connection.check(now_s, LONG)) is None  # type: ignore[misc]
        assert shell.call(lambda: connection.check(27.0 + 3, LONG)) is None


def test_a_client_that_sends_a_request_too_slowly_is_stalled(shell: Shell) -> None:
    """It makes progress all the time, but 800 kB must arrive within 30 s plus 1.5 s for their size."""
    with shell.connect() as client:
        frame = produce_frame(1, 800_000)
        (connection,) = shell.connections()
        look_no_more(shell)
        reasons = []
        for number in range(5):
            client.sendall(frame[number * 70_000 : (number + 1) * 70_000])
            received_bytes = (number + 1) * 70_000
            shell.until(lambda count=received_bytes: connection._received_bytes == count)  # type: ignore[misc]
            reasons.append(shell.call(lambda number=number: connection.check(10.0 * number, LONG)))  # type: ignore[misc]
        assert reasons == [None, None, None, None, "stalled"]


def test_a_connection_without_a_request_is_closed_after_the_time_for_the_first_one() -> None:
    with Shell({"network": {"connection_first_request_ms": 200}}) as shell, shell.connect() as silent:
        with closing(shell.client()) as client:
            client.request(ApiVersionsRequest(), ApiVersionsResponse, VERSIONS_VERSION)
            assert is_hung_up_on(silent)
            client.request(ApiVersionsRequest(), ApiVersionsResponse, VERSIONS_VERSION)
        assert shell.services.probe.connections_reaped == 1


# Disconnects


def test_a_half_closed_client_gets_finished_responses_and_is_disconnected(shell: Shell) -> None:
    with shell.connect() as client:
        client.sendall(versions_frame(1) + versions_frame(2))
        client.shutdown(socket.SHUT_WR)
        assert answered(client, 2) == [1, 2]
        assert client.recv(1) == b""


def test_fetches_of_a_half_closed_client_do_not_wait(shell: Shell) -> None:
    with shell.connect() as client:
        client.sendall(poll_frame(1))
        shell.until(lambda: len(shell.services.fetch_purgatory) == 1)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
        shell.until(lambda: len(shell.services.fetch_purgatory) == 0)


def test_a_produce_without_acknowledgement_that_fails_hangs_up_after_the_answers_before_it(
    held: tuple[Shell, HeldFiles],
) -> None:
    shell, files = held
    files.hold()
    with shell.connect() as client:
        bad = request_frame(produce_request("nobody", batch_of(), acks=0), PRODUCE_VERSION, 2)
        client.sendall(produce_frame(1) + bad + versions_frame(3))
        shell.until(lambda: shell.log("t").log_end_offset == 1)
        files.release()
        assert answered(client, 1) == [1]
        assert is_hung_up_on(client)
    assert shell.services.probe.handler_failures == 0


def fails_now(*_: Any) -> Any:
    raise ZeroDivisionError


async def fails_later(*_: Any) -> Any:
    await asyncio.sleep(0)
    raise ZeroDivisionError


def answers_what_cannot_be_encoded(*_: Any) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=1 << 40)


@pytest.mark.parametrize("handle", [fails_now, fails_later, answers_what_cannot_be_encoded])
def test_a_handler_that_fails_closes_only_the_connection_of_its_client(
    shell: Shell, handle: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher = shell.broker.dispatchers[DEFAULT_LISTENER]
    with shell.connect() as client, closing(shell.client()) as other:
        good = dispatcher._apis[ApiVersionsRequest.API_KEY]
        bad = Api(ApiVersionsRequest, ApiVersionsResponse, handle)
        shell.call(lambda: dispatcher._apis.update({bad.key: bad}))
        client.sendall(versions_frame(1))
        assert is_hung_up_on(client)
        shell.call(lambda: dispatcher._apis.update({good.key: good}))
        assert other.request(ApiVersionsRequest(), ApiVersionsResponse, VERSIONS_VERSION).error_code == 0
    assert shell.services.probe.handler_failures == 1
    assert "request handler failed api='ApiVersions' peer='127.0.0.1'" in caplog.text


def join_frame(correlation_id: int) -> bytes:
    message = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=600_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    return request_frame(message, 3, correlation_id)


def test_nothing_is_left_of_clients_that_went_away(held: tuple[Shell, HeldFiles]) -> None:
    shell, files = held
    shell.create("quiet")
    files.hold()
    tasks = shell.call(asyncio.all_tasks)
    for _ in range(3):
        clients = [shell.connect() for _ in range(8)]
        for client in clients:
            half = produce_frame(6, 100_000)[:70_000]
            client.sendall(
                poll_frame(1, topic="quiet") + produce_frame(2, 50_000) + join_frame(3) + versions_frame(4) + half
            )
        shell.until(lambda: len(shell.services.fetch_purgatory) == 8)
        for client in clients:
            reset(client)
        shell.until(lambda: not shell.broker.listener.connections)
    files.release()
    shell.until(lambda: shell.log("t").high_watermark == 24)
    services, listener = shell.services, shell.broker.listener
    shell.until(lambda: len(services.fetch_purgatory) == 0 and not pending_replies(services))
    shell.until(lambda: len(asyncio.all_tasks()) <= len(tasks))
    assert (listener.receive_memory.held_bytes, listener.receive_memory.waiting) == (0, {})
    assert (services.response_memory.used_bytes, services.fetch_purgatory._delayed) == (0, {})

    def connections() -> int:
        gc.collect()
        existing = [item for item in gc.get_objects() if isinstance(item, ServerConnection)]
        return sum(connection._registry is listener for connection in existing)

    until(lambda: connections() == 0)


def test_a_disconnect_during_a_response_releases_the_memory_of_the_client(shell: Shell) -> None:
    listener = shell.broker.listener
    with shell.connect() as client:
        client.sendall(poll_frame(1))
        shell.until(lambda: len(shell.services.fetch_purgatory) == 1)
        (connection,) = shell.connections()

        def leave_and_be_answered() -> None:
            response = connection._pending[0].source
            assert isinstance(response, DeferredResponse)
            connection._transport.abort()
            response.complete(FetchResponse())

        shell.call(leave_and_be_answered)
        shell.until(lambda: not listener.connections)
        shell.call(lambda: None)
        assert (listener.receive_memory.held_bytes, listener.receive_memory.waiting) == (0, {})


def create_frame(topic: str) -> bytes:
    topics = [CreatableTopic(name=topic, num_partitions=20, replication_factor=1)]
    return request_frame(CreateTopicsRequest(topics=topics), 7)


def test_a_topic_is_created_whole_though_its_creator_leaves(held: tuple[Shell, HeldFiles]) -> None:
    shell, files = held
    files.hold()
    with shell.connect() as client:
        client.sendall(create_frame("orphan"))
        until(lambda: files.waiting)
    shell.until(lambda: not shell.broker.listener.connections)
    files.release()
    shell.until(lambda: "orphan" in shell.services.topics.metadata.topics)
    shell.until(lambda: TopicPartition("orphan", 19) in shell.broker.directory)


def test_a_topic_is_deleted_whole_though_its_deleter_leaves(held: tuple[Shell, HeldFiles]) -> None:
    shell, files = held
    files.hold()
    with shell.connect() as client:
        client.sendall(request_frame(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 6))
        until(lambda: files.waiting)
    shell.until(lambda: not shell.broker.listener.connections)
    files.release()
    shell.until(lambda: "t" not in shell.services.topics.metadata.topics)
    assert TopicPartition("t", 0) not in shell.broker.directory


def test_small_answers_are_not_held_back(shell: Shell) -> None:
    with shell.connect():
        (connection,) = shell.connections()
        connected = connection._transport.get_extra_info("socket")
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
