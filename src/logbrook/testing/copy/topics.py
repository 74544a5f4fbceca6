"""The source and target topics of a copy test: creation, writing the originals, reading the copies."""

from collections import defaultdict
from time import monotonic

from logbrook.model import TopicPartition
from logbrook.testing.copy.comparison import Record
from logbrook.testing.kill import clients
from logbrook.testing.kill.clients import KafkaError, KafkaException, Message, NewTopic
from logbrook.testing.kill.plan import MESSAGE_BYTES_MAX

SOURCE = "originals"
TARGET = "copies"
GROUP = "copiers"
BATCH_BYTES_MAX = MESSAGE_BYTES_MAX // 2
_ANSWER_TIMEOUT_S = 10.0
_WRITE_TIMEOUT_S = 30.0
_KEYS_PER_PARTITION = 50


def create(address: str, partitions: int) -> None:
    """Create both topics. Raises KafkaException or TimeoutError."""
    admin = clients.admin_client(address)
    topics = [NewTopic(name, partitions, 1) for name in (SOURCE, TARGET)]
    for created in admin.create_topics(topics).values():
        created.result(_ANSWER_TIMEOUT_S)


def write_originals(address: str, records: int, partitions: int) -> dict[int, list[Record]]:
    """Write the originals and return them by partition. Keys are distinct per partition. Raises TimeoutError."""
    written: dict[int, list[Record]] = defaultdict(list)
    refused: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(str(error))

    settings = {"enable.idempotence": True, "queue.buffering.max.messages": records, "batch.size": BATCH_BYTES_MAX}
    sender = clients.producer(address, **settings)
    for number in range(records):
        key_number = number % (partitions * _KEYS_PER_PARTITION)
        partition = key_number % partitions
        record = (f"key-{key_number}".encode(), f"record {number}".encode())
        written[partition].append(record)
        sender.produce(SOURCE, record[1], record[0], partition=partition, on_delivery=delivered)
    if sender.flush(_WRITE_TIMEOUT_S) or refused:
        raise TimeoutError(f"{len(sender)} of {records} originals were not acknowledged and {refused[:1]} refused")
    return dict(written)


def committed(observer: clients.Consumer, partitions: int) -> dict[int, int]:
    """Return the copiers' committed offsets by partition, without the partitions that failed."""
    source = [clients.client_partition(TopicPartition(SOURCE, number)) for number in range(partitions)]
    try:
        offsets = observer.committed(source, timeout=_ANSWER_TIMEOUT_S)
    except KafkaException:
        return {}
    return {offset.partition: offset.offset for offset in offsets if offset.error is None and offset.offset >= 0}


def has_open_transactions(address: str, partitions: int) -> bool:
    """True if the last stable offset of a target partition is below its high watermark."""
    levels = ("read_committed", "read_uncommitted")
    readers = [clients.reader(address, **{"isolation.level": level}) for level in levels]
    try:
        for number in range(partitions):
            target = clients.client_partition(TopicPartition(TARGET, number))
            stable, latest = (reader.get_watermark_offsets(target, timeout=_ANSWER_TIMEOUT_S) for reader in readers)
            if stable != latest:
                return True
        return False
    finally:
        for reader in readers:
            reader.close()


def read_topic(address: str, topic: str, partitions: int, isolation: str, timeout_s: float) -> dict[int, list[Record]]:
    """Read a topic to its end, by partition. Raises TimeoutError."""
    records: dict[int, list[Record]] = defaultdict(list)
    reader = clients.reader(address, **{"isolation.level": isolation})
    deadline = monotonic() + timeout_s
    try:
        reader.assign([clients.client_partition(TopicPartition(topic, number), 0) for number in range(partitions)])
        reading = set(range(partitions))
        while reading:
            if monotonic() > deadline:
                raise TimeoutError(f"{len(reading)} partitions of {topic} could not be read within {timeout_s:.0f} s")
            for message in reader.consume(1000, 0.1):
                error, number, value = message.error(), message.partition(), message.value()
                assert number is not None, "a delivered message has a partition"
                if error is None:
                    assert value is not None, "every record has a value"
                    records[number].append((message.key(), value))
                elif error.code() == KafkaError._PARTITION_EOF:
                    reading.discard(number)
        return dict(records)
    finally:
        reader.close()
