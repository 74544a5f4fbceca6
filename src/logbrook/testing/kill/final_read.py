"""The last reading: every partition from its first record to its last, by a client that has seen nothing before."""

from collections import defaultdict
from collections.abc import Iterator
from time import monotonic
from typing import NamedTuple

from logbrook.client import Client
from logbrook.model import TopicPartition
from logbrook.records.batch import iter_headers
from logbrook.testing.kill import clients
from logbrook.testing.kill.clients import Consumer, KafkaError
from logbrook.testing.kill.payloads import value_of
from logbrook.testing.kill.scene import Scene

_ANSWER_TIMEOUT_S = 10.0


def read_everything(scene: Scene, partitions: list[TopicPartition], timeout_s: float) -> None:
    """Records the topics and what is in the partitions. What cannot be read in time is a problem, and not recorded."""
    admin = clients.admin_client(scene.address)
    topics = admin.list_topics(timeout=_ANSWER_TIMEOUT_S).topics
    scene.recorder.final_topics({name: len(topic.partitions) for name, topic in topics.items()})
    missing = [one for one in partitions if one.topic not in topics]
    there = [one for one in partitions if one not in missing]
    deadline = monotonic() + timeout_s
    for partition, read in _read(scene, there, "read_uncommitted", deadline).items():
        scene.recorder.final_read(read.begun_at_ns, partition, read.end, read.records)
    for partition, read in _read(scene, there, scene.isolation, deadline).items():
        scene.recorder.final_committed_read(partition, read.end, read.records)
    with Client(scene.address) as client:
        for partition in there:
            scene.recorder.final_markers(partition, list(_markers(client, partition)))


class _Read(NamedTuple):
    begun_at_ns: int
    end: int
    """Of what such a reader can read."""
    records: list[tuple[int, str]]


def _read(
    scene: Scene, partitions: list[TopicPartition], isolation: str, deadline: float
) -> dict[TopicPartition, _Read]:
    """What cannot be read is a problem, and left out."""
    reader = clients.reader(scene.address, **{"isolation.level": isolation})
    try:
        return _read_with(reader, scene, partitions, deadline)
    finally:
        reader.close()


def _read_with(
    reader: Consumer, scene: Scene, partitions: list[TopicPartition], deadline: float
) -> dict[TopicPartition, _Read]:
    ends: dict[TopicPartition, tuple[int, int]] = {}
    for partition in partitions:
        begun_at_ns = scene.recorder.now_ns()
        marks = reader.get_watermark_offsets(clients.client_partition(partition), timeout=_ANSWER_TIMEOUT_S)
        assert marks is not None, "it has no limit but the time"
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
            assert offset is not None, "a record has an offset"
            records[partition].append((offset, value_of(message.value())))
            continue
        reading.discard(partition)
        # What is missing below the end that the log had a moment ago is for the checker to tell.
        if error.code() != KafkaError._PARTITION_EOF:
            unreadable[partition] = str(error)
    unreadable |= dict.fromkeys(reading, "it took too long")
    scene.problems += [f"the last reading of {partition}: {why}" for partition, why in unreadable.items()]
    return {one: _Read(*ends[one], records[one]) for one in partitions if one not in unreadable}


def _markers(client: Client, partition: TopicPartition) -> Iterator[int]:
    """The offsets of control records, which no client library shows."""
    offset = 0
    while True:
        fetched = client.fetch(partition.topic, partition.partition, offset, max_wait_ms=0)
        headers = [header for _, header in iter_headers(fetched.records)]
        if not headers:
            return
        for header in headers:
            if header.is_control:
                yield from range(header.base_offset, header.next_offset)
        offset = headers[-1].next_offset
