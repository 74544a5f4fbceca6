"""Messages from a form or a script into a topic, with the place that each of them got."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import randrange

from logbrook.client.admin import Admin
from logbrook.client.record_writer import partition_of
from logbrook.model import LogbrookError
from logbrook.records.builder import build_batch
from logbrook.records.record import Record


class NoSuchPartitionError(LogbrookError):
    """A message names a partition that the topic does not have."""


@dataclass(frozen=True, slots=True)
class Written:
    partition: int
    offset: int


def write(admin: Admin, topic: str, records: Sequence[tuple[Record, int | None]]) -> list[Written]:
    """Each record to the partition beside it; else to that of its key, as Kafka's own clients choose it; else to one
    that is chosen for all of them together.

    Nothing is tried again. Raises ClientError: what is written to other partitions by then stays written.
    """
    count = admin.client.partition_count(topic)
    together = randrange(count)
    by_partition: dict[int, list[int]] = {}
    for at, (record, given) in enumerate(records):
        if given is not None and not 0 <= given < count:
            raise NoSuchPartitionError(f"partition {given} does not exist: {topic} has {count}")
        by_key = together if record.key is None else partition_of(record.key, count)
        by_partition.setdefault(by_key if given is None else given, []).append(at)
    written: dict[int, Written] = {}
    for partition, places in sorted(by_partition.items()):
        base = admin.client.produce(topic, partition, build_batch([records[at][0] for at in places]))
        written |= {at: Written(partition, base + n) for n, at in enumerate(places)}
    return [written[at] for at in range(len(records))]
