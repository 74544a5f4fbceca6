"""Short-cuts for tests that write to a broker, read all records of a topic, or wait for a consumer group.

They use Logbrook's own client, over the network as every other.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from logbrook.client import BrokerError, Client
from logbrook.client.admin import Admin
from logbrook.client.admin_results import GroupInfo
from logbrook.client.offset_specs import Earliest, LogBounds
from logbrook.client.partition_requests import PartitionRequests
from logbrook.client.record_writer import RecordWriter
from logbrook.client.records_reader import RecordsReader
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.record import Header, Record

# Text is encoded as UTF-8.
Field: TypeAlias = bytes | str | None

_READ_S_MAX = 30.0
_POLL_S = 0.02
# Errors of a group that is about to be there.
_NOT_YET = frozenset(
    {
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class TopicRecord(NamedTuple):
    """A record as a consumer reads it. `headers` are pairs of a name and a value."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def produce(
    client: Client,
    topic: str,
    values: Sequence[Field],
    *,
    key: Field,
    headers: Mapping[str, Field],
    partition: int | None,
    timestamp_ms: int | None,
) -> None:
    """Write a record for each value, and return when all are acknowledged."""
    fields = tuple((name, _bytes(value)) for name, value in headers.items())
    written_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
    with RecordWriter(client, topic) as writer:
        for value in values:
            writer.write(Record(_bytes(key), _bytes(value), fields, written_ms), partition)


def read_records(
    client: Client,
    topic: str,
    partitions: Sequence[int] | None,
    *,
    committed_only: bool,
    last: int | None = None,
    timeout_s: float = _READ_S_MAX,
) -> list[TopicRecord]:
    """Return the records of these partitions or all, by partition and offset; with `last`, the last of each.

    Raises TimeoutError.
    """
    numbers = client.partitions(topic) if partitions is None else partitions
    bounds = LogBounds(
        PartitionRequests(client), [TopicPartition(topic, number) for number in numbers], committed_only=committed_only
    )
    starts = bounds.resolve(Earliest())
    if last is not None:
        starts = {partition: Offset(max(start, bounds.ends[partition] - last)) for partition, start in starts.items()}
    records: list[TopicRecord] = []
    until_s = time.monotonic() + timeout_s
    with RecordsReader(client, starts, ends=bounds.ends, committed_only=committed_only) as reader:
        while not reader.is_done:
            for run in reader.read():
                number = run.partition.partition
                records += [
                    TopicRecord(number, record.offset, record.timestamp, record.key, record.value, record.headers)
                    for record in run.records
                ]
            if time.monotonic() > until_s:
                raise TimeoutError(f"the records of {topic} could not be read within {timeout_s:.1f} s")
    return sorted(records, key=lambda record: (record.partition, record.offset))


def wait_for_group(
    client: Client, group_id: str, *, members: int, state: str, lag: int | None, timeout_s: float
) -> GroupInfo:
    """Return the group once it is in `state` with this many members, and `lag` at most. Raises TimeoutError."""
    admin, until_s = Admin(client), time.monotonic() + timeout_s
    group: GroupInfo | None = None
    while True:
        try:
            group = admin.groups.describe(group_id)
        except BrokerError as error:
            if error.code not in _NOT_YET:
                raise
        else:
            is_caught_up = lag is None or (group.lag is not None and group.lag <= lag)
            if group.state == state and len(group.members) >= members and is_caught_up:
                return group
        if time.monotonic() > until_s:
            wanted = f"{state} with {members} or more members" + ("" if lag is None else f" and a lag of at most {lag}")
            raise TimeoutError(f"group {group_id!r} was not {wanted} within {timeout_s:g} s; {_describe(group)}")
        threading.Event().wait(_POLL_S)


def _describe(group: GroupInfo | None) -> str:
    if group is None:
        return "it does not exist"
    return f"it is {group.state} with {len(group.members)} members and a lag of {group.lag}"


def _bytes(field: Field) -> bytes | None:
    return field.encode() if isinstance(field, str) else field
