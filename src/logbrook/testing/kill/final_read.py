"""The last reading: every partition from its first record to its last, by a client that has seen nothing before."""

from collections import defaultdict
from time import monotonic

from logbrook.model import TopicPartition
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
    reader = clients.reader(scene.address)
    try:
        _read(scene, reader, [one for one in partitions if one not in missing], monotonic() + timeout_s)
    finally:
        reader.close()


def _read(scene: Scene, reader: Consumer, partitions: list[TopicPartition], deadline: float) -> None:
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
    for partition in set(partitions) - set(unreadable):
        begun_at_ns, end = ends[partition]
        scene.recorder.final_read(begun_at_ns, partition, end, records[partition])
