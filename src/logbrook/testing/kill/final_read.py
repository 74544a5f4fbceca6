"""The final read: every partition from its first record to its last, by a new client."""

from collections import defaultdict
from collections.abc import Iterator
from time import monotonic
from typing import NamedTuple

from logbrook.client import Client
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.records.batch import NO_PRODUCER_ID, BatchHeader, iter_headers
from logbrook.testing.history.events import FinalCommittedRead, FinalMarkers, FinalProducers, FinalRead, FinalTopics
from logbrook.testing.kill import clients
from logbrook.testing.kill.clients import Consumer, KafkaError
from logbrook.testing.kill.load_client import LoadState, value_of

_ANSWER_TIMEOUT_S = 10.0


def read_everything(state: LoadState, partitions: list[TopicPartition], timeout_s: float) -> None:
    """Record the topics and the content of the partitions. A partition that cannot be read in time is a problem."""
    admin = clients.admin_client(state.address)
    topics = admin.list_topics(timeout=_ANSWER_TIMEOUT_S).topics
    state.recorder.record(FinalTopics, {name: len(topic.partitions) for name, topic in topics.items()})
    existing = [partition for partition in partitions if partition.topic in topics]
    deadline = monotonic() + timeout_s
    for partition, read in _read(state, existing, "read_uncommitted", deadline).items():
        state.recorder.record(FinalRead, read.begun_at_ns, partition, read.end, read.records)
    for partition, read in _read(state, existing, state.isolation, deadline).items():
        state.recorder.record(FinalCommittedRead, partition, read.end, read.records)
    with Client(state.address) as client:
        for partition in existing:
            headers = list(_headers(client, partition))
            markers = [header for header in headers if header.is_control]
            offsets = [offset for header in markers for offset in range(header.base_offset, header.next_offset)]
            state.recorder.record(FinalMarkers, partition, offsets)
            batches = [
                (header.base_offset, header.next_offset, header.producer_id, header.producer_epoch)
                for header in headers
                if header.producer_id != NO_PRODUCER_ID and not header.is_control
            ]
            state.recorder.record(FinalProducers, partition, batches)


class _Read(NamedTuple):
    begun_at_ns: int
    end: int
    """The end offset visible to the reader: the high watermark or the last stable offset."""
    records: list[tuple[int, str]]


def _read(
    state: LoadState, partitions: list[TopicPartition], isolation: str, deadline: float
) -> dict[TopicPartition, _Read]:
    """Read with a new consumer. Unreadable partitions are recorded as problems and left out."""
    reader = clients.reader(state.address, **{"isolation.level": isolation})
    try:
        return _read_with(reader, state, partitions, deadline)
    finally:
        reader.close()


def _read_with(
    reader: Consumer, state: LoadState, partitions: list[TopicPartition], deadline: float
) -> dict[TopicPartition, _Read]:
    ends: dict[TopicPartition, tuple[int, int]] = {}
    for partition in partitions:
        begun_at_ns = state.recorder.now_ns()
        marks = reader.get_watermark_offsets(clients.client_partition(partition), timeout=_ANSWER_TIMEOUT_S)
        assert marks is not None, "only a timeout returns None"
        ends[partition] = (begun_at_ns, marks[1])
    reader.assign([clients.client_partition(partition, 0) for partition in partitions])
    records: dict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
    reading = set(partitions)
    unreadable: dict[TopicPartition, str] = {}
    while reading and monotonic() < deadline:
        message = reader.poll(0.1)
        topic, number = (None, None) if message is None else (message.topic(), message.partition())
        if message is None or topic is None or number is None:
            continue
        partition, offset, error = TopicPartition(topic, number), message.offset(), message.error()
        if error is None:
            assert offset is not None, "a delivered record has an offset"
            records[partition].append((offset, value_of(message.value())))
            continue
        reading.discard(partition)
        # The checker reports records missing below the end offset read above.
        if error.code() != KafkaError._PARTITION_EOF:
            unreadable[partition] = str(error)
    unreadable |= dict.fromkeys(reading, "timed out")
    state.problems += [f"final read of {partition}: {why}" for partition, why in unreadable.items()]
    return {
        partition: _Read(*ends[partition], records[partition])
        for partition in partitions
        if partition not in unreadable
    }


def _headers(client: Client, partition: TopicPartition) -> Iterator[BatchHeader]:
    """Yield the headers of all batches, which client libraries do not deliver."""
    offset = 0
    while True:
        fetched = client.fetch(partition.topic, partition.partition, Offset(offset), max_wait_ms=0)
        headers = [header for _, header in iter_headers(fetched.records)]
        if not headers:
            return
        yield from headers
        offset = headers[-1].next_offset
