"""Reading, searching and writing the messages of a topic.

A page reads only about as many records as it shows: a window (range of offsets) in each partition, then windows four
times as large until the page is full. A search starts with larger windows. Both stop after 3 s or 16 MiB of matching
keys and values, and the page then has the positions to continue from; a search of a whole topic is a sequence of such
pages. Messages of several partitions are sorted by timestamp. All functions block; the console runs them on
`ClusterAccess` threads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import randrange
from time import monotonic

from logbrook.client.admin import Admin
from logbrook.client.errors import BrokerError
from logbrook.client.offset_specs import Latest, LogBounds, OffsetSpec
from logbrook.client.partitioner import partition_of
from logbrook.client.records_reader import RecordsReader
from logbrook.console.filters import Predicate, contains_text
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.builder import build_batch
from logbrook.records.record import Header, RawRecord, Record

PAGE = 50
# Windows are numbers of offsets per partition. A search divides its window among the partitions.
_SEARCH_WINDOW = 20_000
_SEARCH_WINDOW_MIN = 500
_WINDOW_GROWTH = 4
_WINDOW_MAX = 100_000
_FETCH_BYTES = 1 << 20
_READ_WAIT_MS = 100
_SCAN_S_MAX = 3.0
_BYTES_MAX = 16 << 20


class NoSuchPartitionError(LogbrookError):
    """A message names a partition that the topic does not have."""


@dataclass(frozen=True, slots=True)
class TopicMessage:
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


@dataclass(frozen=True, slots=True)
class MessagePage:
    """A page. `following` is the offset at which the next page continues, by partition that has more messages.

    For a page read backwards it is exclusive: the next page ends before it. `positions` are the same offsets of all
    partitions, also of those without more messages. `was_cut` is True if the scan reached its limit of time or bytes
    before the page was full. `remaining` is the number of offsets that later pages have to read.
    """

    messages: tuple[TopicMessage, ...]
    following: Mapping[int, int]
    positions: Mapping[int, int]
    scanned: int
    was_cut: bool = False
    remaining: int = 0


@dataclass(frozen=True, slots=True)
class NewestMessages:
    """The newest messages first. `tail` is the position after them in each partition.

    `skipped` is the number of offsets from the old tail on for which there was no room or no time. It is the number of
    messages, unless the topic is compacted or has transactions.
    """

    messages: tuple[TopicMessage, ...]
    tail: Mapping[int, int]
    skipped: int


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Size of a page, a text to search in keys, values and headers, and a filter.

    After `pause_s` the page is returned as it is, so that a search can show its progress.
    """

    count: int = PAGE
    text: str = ""
    bytes_max: int = _BYTES_MAX
    where: Predicate | None = None
    pause_s: float = _SCAN_S_MAX

    @property
    def is_search(self) -> bool:
        return bool(self.text) or self.where is not None

    @property
    def matches(self) -> Predicate:
        where = self.where
        if not self.text:
            return where or (lambda _, __: True)
        has_text = contains_text(self.text)
        if where is None:
            return has_text
        return lambda partition, record: has_text(partition, record) and where(partition, record)

    def window(self, partitions: int) -> int:
        """Return the number of offsets to read first from each of so many partitions."""
        if not self.is_search:
            return self.count
        return max(_SEARCH_WINDOW_MIN, _SEARCH_WINDOW // max(1, partitions))


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    partition: int
    offset: int


def log_bounds_of(admin: Admin, topic: str, partition: int | None = None) -> LogBounds:
    """Return the bounds of a topic's partitions, or of one of them. Raises ClientError."""
    metadata = admin.cluster.topics([topic]).get(topic)
    numbers = () if metadata is None else metadata.partitions
    chosen = [number for number in numbers if partition is None or number == partition]
    if not chosen:
        target = f"topic {topic}" if partition is None else f"partition {partition} of {topic}"
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"looking up {target}")
    return LogBounds(admin.cluster, [TopicPartition(topic, number) for number in chosen], committed_only=True)


def first_page(admin: Admin, topic: str, partition: int | None, at: OffsetSpec, request: PageRequest) -> MessagePage:
    """Return the page from a position on; from the end, newest messages first. Raises ClientError."""
    bounds = log_bounds_of(admin, topic, partition)
    if isinstance(at, Latest):
        return _backward_page(admin, bounds.starts, bounds.ends, request)
    return _forward_page(admin, bounds, bounds.resolve(at), request)


def next_page(
    admin: Admin,
    topic: str,
    following: Mapping[int, int],
    backwards: bool,
    request: PageRequest,
    *,
    with_added: bool = False,
) -> MessagePage:
    """Return the page that continues at `following`, towards the start if `backwards`. Raises ClientError.

    With `with_added`, partitions that were added since `following` was returned are read from their start.
    """
    bounds = log_bounds_of(admin, topic)
    existing = {partition.partition for partition in bounds.partitions}
    positions = _added_partitions(bounds, following) if with_added else {}
    for number, offset in following.items():
        if number in existing:
            partition = TopicPartition(topic, number)
            positions[partition] = bounds.clamp(partition, Offset(offset))
    if backwards:
        return _backward_page(admin, bounds.starts, positions, request)
    return _forward_page(admin, bounds, positions, request)


def newest_messages(
    admin: Admin, topic: str, tail: Mapping[int, int], request: PageRequest, *, with_added: bool = False
) -> NewestMessages:
    """Return the newest messages from the offsets of `tail` on, at most `request.count`. Raises ClientError.

    Messages are read backwards from the end, so a caller that polls more slowly than messages arrive stays at the end
    and loses the older ones. With `with_added`, partitions that were added since the last call are read, too.
    """
    bounds = log_bounds_of(admin, topic)
    if with_added:
        added = _added_partitions(bounds, tail)
        tail = {**tail, **{partition.partition: start for partition, start in added.items()}}
    starts, ends = {}, {}
    for partition in bounds.partitions:
        position = tail.get(partition.partition)
        if position is not None and position < bounds.ends[partition]:
            starts[partition] = max(position, bounds.starts[partition])
            ends[partition] = bounds.ends[partition]
    page = _backward_page(admin, starts, ends, request)
    skipped = 0
    for partition, start in starts.items():
        number = partition.partition
        skipped += page.following.get(number, start) - tail[number]
    return NewestMessages(page.messages, {**tail, **{p.partition: end for p, end in ends.items()}}, skipped)


def write(admin: Admin, topic: str, records: Sequence[tuple[Record, int | None]]) -> list[WrittenRecord]:
    """Write records, each with its partition or None, and return their positions in the same order.

    Without a partition, a record goes to that of its key, chosen as Kafka's clients do; records without a key go to one
    random partition. Nothing is retried. Raises ClientError: records of other partitions may be written by then.
    """
    count = admin.client.partition_count(topic)
    random_partition = randrange(count)
    by_partition: dict[int, list[int]] = {}
    for index, (record, requested) in enumerate(records):
        if requested is not None and not 0 <= requested < count:
            raise NoSuchPartitionError(f"partition {requested} does not exist: {topic} has {count}")
        by_key = random_partition if record.key is None else partition_of(record.key, count)
        by_partition.setdefault(by_key if requested is None else requested, []).append(index)
    written: dict[int, WrittenRecord] = {}
    for partition, indexes in sorted(by_partition.items()):
        base_offset = admin.client.produce(topic, partition, build_batch([records[index][0] for index in indexes]))
        written |= {index: WrittenRecord(partition, base_offset + n) for n, index in enumerate(indexes)}
    return [written[index] for index in range(len(records))]


def _added_partitions(bounds: LogBounds, positions: Mapping[int, int]) -> dict[TopicPartition, int]:
    """Return the start offsets of the partitions that were added since `positions` covered the whole topic.

    Partitions are numbered from 0, so positions that leave out a number are of chosen partitions and none is added.
    """
    if set(positions) != set(range(len(positions))):
        return {}
    return {
        partition: bounds.starts[partition] for partition in bounds.partitions if partition.partition not in positions
    }


def _forward_page(
    admin: Admin, bounds: LogBounds, starts: Mapping[TopicPartition, int], request: PageRequest
) -> MessagePage:
    scan = _Scan(admin, request)
    positions, window = dict(starts), request.window(len(starts))
    while not scan.is_over:
        ranges = {}
        for partition, position in positions.items():
            upper = min(bounds.ends[partition], position + window)
            if position < upper:
                ranges[partition] = (position, upper)
        if not ranges:
            break
        positions |= scan.read(ranges)
        scan.has_progress = True
        window = scan.next_window(window)
    ordered = _by_time(scan.matching)
    shown, surplus = ordered[: request.count], ordered[request.count :]
    # Messages that do not fit are the first of the next page.
    for message in reversed(surplus):
        partition = TopicPartition(bounds.partitions[0].topic, message.partition)
        positions[partition] = min(positions[partition], message.offset)
    remaining = {partition: bounds.ends[partition] - position for partition, position in positions.items()}
    return scan.page(shown, positions, remaining)


def _backward_page(
    admin: Admin, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], request: PageRequest
) -> MessagePage:
    scan = _Scan(admin, request)
    positions, window = dict(ends), request.window(len(ends))
    while not scan.is_over:
        lower = {partition: max(starts[partition], position - window) for partition, position in positions.items()}
        ranges = {
            partition: (lower[partition], position)
            for partition, position in positions.items()
            if lower[partition] < position
        }
        if not ranges:
            break
        reached = scan.read(ranges)
        complete = {partition for partition, (_, upper) in ranges.items() if reached[partition] >= upper}
        positions |= {partition: lower[partition] for partition in complete}
        scan.has_progress |= bool(complete)
        if len(complete) == len(ranges):
            window = scan.next_window(window)
            continue
        # The limit was reached inside a range. A page read backwards must contain the newest messages of a range, so
        # drop those that were read; if that leaves none, retry with a smaller window.
        scan.drop({partition.partition: lower[partition] for partition in ranges if partition not in complete})
        if scan.has_progress or scan.matching or window == 1:
            break
        window = max(1, window // (2 * _WINDOW_GROWTH))
        scan.renew()
    newest_first = _by_time(scan.matching)[::-1]
    shown, surplus = newest_first[: request.count], newest_first[request.count :]
    partitions = {partition.partition: partition for partition in positions}
    for message in surplus:
        partition = partitions[message.partition]
        positions[partition] = max(positions[partition], message.offset + 1)
    return scan.page(shown, positions, {partition: end - starts[partition] for partition, end in positions.items()})


class _Scan:
    """Reads ranges of offsets and keeps matching messages, until a page is full or a limit is reached."""

    def __init__(self, admin: Admin, request: PageRequest) -> None:
        self._admin = admin
        self._request = request
        self._matches = request.matches
        self._pause_at_s = monotonic() + request.pause_s
        self._deadline_s = monotonic() + _SCAN_S_MAX
        self._bytes = 0
        self._last_ends: dict[int, int] = {}
        self._read_s = 0.0
        self.matching: list[TopicMessage] = []
        self.scanned = 0
        self.was_cut = False
        # True if the positions have moved, so that the next page does not repeat this one.
        self.has_progress = False

    @property
    def is_over(self) -> bool:
        is_paused = self.has_progress and monotonic() > self._pause_at_s
        return self.was_cut or is_paused or len(self.matching) >= self._request.count

    def renew(self) -> None:
        """Reset the limits of time and bytes."""
        self._deadline_s, self._bytes, self.was_cut = monotonic() + _SCAN_S_MAX, 0, False

    def next_window(self, window: int) -> int:
        """Return a larger window than the last one, or a smaller one if the last took longer than the scan may."""
        growth = min(_WINDOW_GROWTH, self._request.pause_s / max(self._read_s, 0.001))
        return min(_WINDOW_MAX, max(1, int(window * growth)))

    def drop(self, from_offsets: Mapping[int, int]) -> None:
        """Discard the messages of the last ranges of these partitions, which start at `from_offsets`."""
        self.matching = [
            message
            for message in self.matching
            if message.partition not in from_offsets
            or not self._is_in_last_range(message, from_offsets[message.partition])
        ]

    def _is_in_last_range(self, message: TopicMessage, start: int) -> bool:
        return start <= message.offset < self._last_ends[message.partition]

    def read(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """Read ranges of offsets; returns the position reached in each."""
        starts = {partition: start for partition, (start, _) in ranges.items()}
        ends = {partition: end for partition, (_, end) in ranges.items()}
        self._last_ends = {partition.partition: end for partition, end in ends.items()}
        started_s = monotonic()
        with RecordsReader(self._admin.client, starts, ends=ends, bytes_max=_FETCH_BYTES) as reader:
            while not reader.is_done:
                for run in reader.read(_READ_WAIT_MS):
                    self._add(run.partition.partition, run.records)
                if self._bytes > self._request.bytes_max or monotonic() > self._deadline_s:
                    self.was_cut = True
                    break
            self._read_s = monotonic() - started_s
            # The last batch may extend beyond the range; its further records were left out.
            return {partition: min(position, ends[partition]) for partition, position in reader.positions.items()}

    def page(
        self,
        shown: Sequence[TopicMessage],
        positions: Mapping[TopicPartition, int],
        remaining: Mapping[TopicPartition, int],
    ) -> MessagePage:
        """Return the page of the messages `shown`, with the position reached and the rest of each partition."""
        return MessagePage(
            tuple(shown),
            {partition.partition: position for partition, position in positions.items() if remaining[partition] > 0},
            {partition.partition: position for partition, position in positions.items()},
            self.scanned,
            self.was_cut and len(shown) < self._request.count,
            sum(max(0, count) for count in remaining.values()),
        )

    def _add(self, partition: int, records: Sequence[RawRecord]) -> None:
        self.scanned += len(records)
        for record in records:
            if self._matches(partition, record):
                message = TopicMessage(
                    partition, record.offset, record.timestamp, record.key, record.value, record.headers
                )
                self.matching.append(message)
                self._bytes += message.size


def _by_time(messages: Sequence[TopicMessage]) -> list[TopicMessage]:
    """Sort by timestamp, but keep the order of offsets within a partition, where timestamps may decrease."""
    latest_ms: dict[int, int] = {}
    keys: list[tuple[int, int, int]] = []
    by_offset = sorted(messages, key=lambda message: (message.partition, message.offset))
    for message in by_offset:
        partition = message.partition
        latest_ms[partition] = max(message.timestamp_ms, latest_ms.get(partition, message.timestamp_ms))
        keys.append((latest_ms[partition], partition, message.offset))
    return [by_offset[index] for index in sorted(range(len(by_offset)), key=keys.__getitem__)]
