"""Floods of announced, pipelined or repeated requests: other clients are served, and memory stays bounded."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from logbrook.client import Client
from logbrook.protocol.messages.api_versions import ApiVersionsRequest
from logbrook.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from logbrook.protocol.messages.delete_topics import DeleteTopicsRequest
from logbrook.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from logbrook.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from logbrook.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from logbrook.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from logbrook.protocol.schema import ApiMessage
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from tests.hostile.victim import HONEST, MIB, Victim
from tests.hostile.wire import raw_frame, receive_frame, request_frame

FLAGS = ("--network-received-bytes-max", "64MiB")
GROWTH_BYTES_MAX = 128 * MIB

WIDE, WIDE_PARTITIONS = "wide", 100
TINY = raw_frame(ApiVersionsRequest.API_KEY, 0, b"\xff\xff")
# CPU time of the broker: elapsed time depends on the load of the machine.
HONEST_CPU_S_MAX = 3.0


@contextmanager
def connections(victim: Victim, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(victim.connect()) for _ in range(count)]


def check_promptly(victim: Victim) -> None:
    """Check that a valid client is served before the broker has spent much CPU time on the others."""
    before_s = victim.cpu_s
    victim.check()
    took_s = victim.cpu_s - before_s
    assert took_s < HONEST_CPU_S_MAX, f"the broker worked {took_s:.1f} s before an honest client was served"


def test_requests_that_are_merely_announced_use_almost_no_memory(victim: Victim) -> None:
    with victim.peak_below(32 * MIB), connections(victim, 400) as all_connected:
        for connected in all_connected:
            connected.sendall(raw_frame(0, 9, size=100 * MIB))
        check_promptly(victim)


def test_requests_that_are_merely_announced_do_not_block_a_large_one_that_comes(victim: Victim) -> None:
    with connections(victim, 400) as all_connected, Client(victim.address) as client:
        for connected in all_connected:
            connected.sendall(raw_frame(0, 9, size=100 * MIB))
        client.produce(HONEST, 0, build_batch([Record(value=bytes(900_000))]))


def test_large_requests_that_never_end_do_not_block_other_producers(victim: Victim) -> None:
    """Each client sends more than its share, as far as the broker reads it, and stops before the end.

    One address gets half of the bound, 32 MiB. One connection is exempt: its request may grow from 64 to 99 MiB, and
    for a moment it has both.
    """
    peak_bytes = (32 + 64 + 99 + 16) * MIB
    with victim.peak_below(peak_bytes), connections(victim, 14) as all_connected, Client(victim.address) as client:
        for connected in all_connected:
            connected.sendall(raw_frame(0, 9, size=99 * MIB))
            connected.setblocking(False)
        pieces = dict.fromkeys(all_connected, 0)
        for _ in range(400):
            for connected in all_connected:
                with suppress(BlockingIOError):
                    pieces[connected] += connected.send(bytes(256 * 1024))
        assert sum(pieces.values()) > 16 * MIB
        for _ in range(20):
            client.produce(HONEST, 0, build_batch([Record(value=bytes(900_000))]))
        check_promptly(victim)


def test_thousands_of_requests_without_reading_use_little_memory_and_do_not_block_others(victim: Victim) -> None:
    with victim.peak_below(64 * MIB), connections(victim, 6) as all_connected:
        for connected in all_connected:
            connected.setblocking(False)
            with suppress(BlockingIOError):
                connected.send(TINY * 20_000)
        check_promptly(victim)


def test_pipelined_requests_are_answered_in_order_once_they_are_read(victim: Victim) -> None:
    count = 3000
    frames = b"".join(request_frame(MetadataRequest(topics=[]), 8, number) for number in range(count))
    with victim.connect() as connected:
        sending = threading.Thread(target=connected.sendall, args=(frames,))
        sending.start()
        answers = [receive_frame(connected) for _ in range(count)]
        sending.join()
    assert [int.from_bytes((answer or b"")[:4], "big") for answer in answers] == list(range(count))


def create_many(count: int) -> ApiMessage:
    topics = [CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1) for number in range(count)]
    return CreateTopicsRequest(topics=topics, validate_only=True)


def describe_again(count: int) -> ApiMessage:
    topic = DescribeConfigsResource(resource_type=2, resource_name=WIDE, configuration_keys=None)
    return DescribeConfigsRequest(resources=[topic] * count)


def fetch_again(count: int) -> ApiMessage:
    return FetchRequest(topics=[FetchTopic(topic=WIDE, partitions=[FetchPartition(partition_max_bytes=MIB)] * count)])


def list_again(count: int) -> ApiMessage:
    partitions = [ListOffsetsPartition(timestamp=0)] * count
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=HONEST, partitions=partitions)])


def committed_many(count: int) -> ApiMessage:
    topic = OffsetFetchRequestTopic(name=WIDE, partition_indexes=list(range(count)))
    return OffsetFetchRequest(group_id="g", topics=[topic])


# Requests that repeat one element very often, with their versions and the number of elements.
MUCH: dict[str, tuple[Callable[[int], ApiMessage], int, int]] = {
    "metadata": (lambda count: MetadataRequest(topics=[MetadataRequestTopic(name=WIDE)] * count), 8, 3_000),
    "create": (create_many, 6, 30_000),
    "delete": (lambda count: DeleteTopicsRequest(topic_names=["none"] * count), 5, 30_000),
    "configs": (describe_again, 4, 30_000),
    "fetch": (fetch_again, 11, 30_000),
    "offsets": (list_again, 6, 30_000),
    "committed": (committed_many, 6, 30_000),
}


@pytest.mark.parametrize("name", MUCH)
def test_a_small_request_for_very_much_uses_little_memory_and_does_not_block_others(victim: Victim, name: str) -> None:
    with Client(victim.address) as client:
        if WIDE not in {topic.name for topic in client.metadata().topics}:
            client.create_topic(WIDE, WIDE_PARTITIONS)
    make, version, count = MUCH[name]
    with victim.peak_below(128 * MIB), victim.connect() as connected:
        connected.sendall(request_frame(make(count), version))
        check_promptly(victim)
        receive_frame(connected)
