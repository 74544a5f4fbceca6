"""What is copied, and what is there in the end: whole topics, written and read."""

from collections import defaultdict
from time import monotonic

from logbrook.model import TopicPartition
from logbrook.testing.copy.judge import Record
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
    """Raises KafkaException or TimeoutError if the broker does not create them."""
    admin = clients.admin_client(address)
    topics = [NewTopic(name, partitions, 1) for name in (SOURCE, TARGET)]
    for created in admin.create_topics(topics).values():
        created.result(_ANSWER_TIMEOUT_S)


def write_originals(address: str, records: int, partitions: int) -> dict[int, list[Record]]:
    """Each with a key of its partition. What was written, by partition. Raises TimeoutError if it takes too long."""
    written: dict[int, list[Record]] = defaultdict(list)
    refused: list[str] = []

    def answered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(str(error))

    library = {"enable.idempotence": True, "queue.buffering.max.messages": records, "batch.size": BATCH_BYTES_MAX}
    sender = clients.producer(address, **library)
    for number in range(records):
        key_number = number % (partitions * _KEYS_PER_PARTITION)
        partition = key_number % partitions
        record = (f"key-{key_number}".encode(), f"record {number}".encode())
        written[partition].append(record)
        sender.produce(SOURCE, record[1], record[0], partition=partition, on_delivery=answered)
    if sender.flush(_WRITE_TIMEOUT_S) or refused:
        raise TimeoutError(f"{len(sender)} of {records} originals were not acknowledged and {refused[:1]} refused")
    return dict(written)


def committed(observer: clients.Consumer, partitions: int) -> dict[int, int]:
    """What the copiers' group has committed; nothing for partitions that the broker does not answer for."""
    asked = [clients.client_partition(TopicPartition(SOURCE, number)) for number in range(partitions)]
    try:
        answer = observer.committed(asked, timeout=_ANSWER_TIMEOUT_S)
    except KafkaException:
        return {}
    return {one.partition: one.offset for one in answer if one.error is None and one.offset >= 0}


def has_open_transactions(address: str, partitions: int) -> bool:
    """Whether a reader of committed records cannot read the copies to their end yet."""
    ends = [clients.reader(address, **{"isolation.level": level}) for level in ("read_committed", "read_uncommitted")]
    try:
        for number in range(partitions):
            asked = clients.client_partition(TopicPartition(TARGET, number))
            stable, latest = (end.get_watermark_offsets(asked, timeout=_ANSWER_TIMEOUT_S) for end in ends)
            if stable != latest:
                return True
        return False
    finally:
        for end in ends:
            end.close()


def read_copies(address: str, partitions: int, isolation: str, timeout_s: float) -> dict[int, list[Record]]:
    """From the first to the last, by partition. Raises TimeoutError."""
    found: dict[int, list[Record]] = defaultdict(list)
    reader = clients.reader(address, **{"isolation.level": isolation})
    deadline = monotonic() + timeout_s
    try:
        reader.assign([clients.client_partition(TopicPartition(TARGET, number), 0) for number in range(partitions)])
        reading = set(range(partitions))
        while reading:
            if monotonic() > deadline:
                raise TimeoutError(f"{len(reading)} partitions of copies could not be read within {timeout_s:.0f} s")
            for message in reader.consume(1000, 0.1):
                error, number, value = message.error(), message.partition(), message.value()
                assert number is not None, "a record has a place"
                if error is None:
                    assert value is not None, "every record has a value"
                    found[number].append((message.key(), value))
                elif error.code() == KafkaError._PARTITION_EOF:
                    reading.discard(number)
        return dict(found)
    finally:
        reader.close()
