"""Reading logs through a running cluster to see whether they are good, and what is told about logs."""

from collections.abc import Iterable, Sequence

from logbrook.cli.log_data import chosen_partitions
from logbrook.cli.output import print_table, size
from logbrook.client import BrokerError
from logbrook.client.admin import Admin
from logbrook.model import TopicPartition
from logbrook.records.batch import check_batch, iter_headers
from logbrook.records.errors import RecordsError
from logbrook.storage.findings import Checked, Damage
from logbrook.storage.log import Log


def check_through_broker(admin: Admin, names: Sequence[str] | None) -> list[Checked]:
    """Read all that a cluster shows its clients. Raises ClientError when it cannot be asked."""
    topics = admin.topics.all()
    starts = {TopicPartition(one.name, each.partition): each.start_offset for one in topics for each in one.partitions}
    ends = {TopicPartition(one.name, each.partition): each.end_offset for one in topics for each in one.partitions}
    return [
        _check_partition(admin, one, starts[one] or 0, ends[one] or 0) for one in chosen_partitions(list(starts), names)
    ]


def print_checked(checked: Iterable[Checked]) -> None:
    columns = ("partition", "segments", "batches", "records", "size", "state")
    rows = [
        (str(one.partition), one.segments, one.batches, one.records, size(one.bytes), "BAD" if one.damage else "good")
        for one in checked
    ]
    print_table(columns, rows)


def missing_offsets(log: Log) -> list[tuple[int, int]]:
    """The runs of offsets, first and last, between the log's start and its end that no batch holds."""
    missing: list[tuple[int, int]] = []
    expected = log.log_start_offset
    for segment in log.segments:
        for hop in segment.hops():
            if hop.header.base_offset > expected:
                missing.append((expected, hop.header.base_offset - 1))
            expected = max(expected, hop.header.next_offset)
    if log.log_end_offset > expected:
        missing.append((expected, log.log_end_offset - 1))
    return missing


def _check_partition(admin: Admin, partition: TopicPartition, start: int, end: int) -> Checked:
    batches = records = bytes_read = 0
    offset = start
    damage = None
    while offset < end and damage is None:
        try:
            fetched = admin.client.fetch(partition.topic, partition.partition, offset)
        except BrokerError as error:
            return Checked(partition, None, None, None, None, Damage(str(error), offset=offset))
        before = offset
        try:
            for position, header in iter_headers(fetched.records):
                check_batch(fetched.records, position, position + header.size)
                if header.next_offset <= offset:
                    raise RecordsError(f"offset {header.base_offset} stands where {offset} or a later one belongs")
                offset = header.next_offset
                batches, records, bytes_read = batches + 1, records + header.count, bytes_read + header.size
        except RecordsError as error:
            damage = Damage(str(error), offset=offset)
        if damage is None and offset == before:
            # Nothing is left up to the end: what was there was compacted away.
            break
    return Checked(partition, None, batches, records, bytes_read, damage)
