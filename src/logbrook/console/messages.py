"""The messages of a topic, a page at a time, forwards or backwards, all of them or those that hold a text.

Only what is shown is read: a window of offsets in each partition, about as large as the page, and the next one if that
was not enough. A search reads larger windows, and stops after some time or some records, with the place from which it
can go on. Messages of several partitions are put in the order of their times.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from logbrook.client.admin import Admin
from logbrook.client.errors import BrokerError
from logbrook.client.positions import End, Position, Positions
from logbrook.client.records_reader import RecordsReader
from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.record import Header

PAGE = 50
_SEARCH_WINDOW = 20_000
_GROWTH = 4
_WINDOW_MAX = 100_000
_FETCH_BYTES = 1 << 20
_READ_WAIT_MS = 100
_TIME_S_MAX = 3.0
_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class Message:
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]

    @property
    def size(self) -> int:
        """Of the key and the value."""
        return len(self.key or b"") + len(self.value or b"")


@dataclass(frozen=True, slots=True)
class Page:
    """`following` is where the next page begins, in each partition that has one; `was_cut` when a search ran out of its
    time before it had a page full."""

    messages: tuple[Message, ...]
    following: Mapping[int, int]
    scanned: int
    was_cut: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """`text` is looked for in keys, values and the names and values of headers, whatever its case."""

    count: int = PAGE
    text: str = ""
    bytes_max: int = _BYTES_MAX

    @property
    def matches(self) -> Callable[[Message], bool]:
        if not self.text:
            return lambda _: True
        needle = self.text.lower().encode()

        def holds(message: Message) -> bool:
            parts = [message.key, message.value]
            for name, value in message.headers:
                parts += [name.encode(), value]
            # Bytes know upper and lower case of ASCII alone; other letters are looked for as they are typed too.
            return any(part and (needle in part.lower() or self.text.encode() in part) for part in parts)

        return holds

    @property
    def window(self) -> int:
        return _SEARCH_WINDOW if self.text else self.count


def positions_of(admin: Admin, topic: str, partition: int | None = None) -> Positions:
    """Where the partitions of a topic begin and end, or one of them. Raises ClientError."""
    found = admin.cluster.topics([topic]).get(topic)
    numbers = () if found is None else found.partitions
    chosen = [one for one in numbers if partition is None or one == partition]
    if not chosen:
        what = f"looking up topic {topic}" if partition is None else f"looking up partition {partition} of {topic}"
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
    return Positions(admin.cluster, [TopicPartition(topic, one) for one in chosen], committed_only=True)


def first_page(admin: Admin, topic: str, partition: int | None, at: Position, wanted: Wanted) -> Page:
    """From a place on; from the end it goes backwards, newest first. Raises ClientError."""
    positions = positions_of(admin, topic, partition)
    if isinstance(at, End):
        return _backwards(admin, positions, positions.ends, wanted)
    return _forwards(admin, positions, positions.offsets(at), wanted)


def next_page(admin: Admin, topic: str, following: Mapping[int, int], backwards: bool, wanted: Wanted) -> Page:
    """What comes after a page, or before it. Raises ClientError."""
    every = positions_of(admin, topic)
    known = {one.partition for one in every.partitions}
    places = {TopicPartition(topic, one): offset for one, offset in following.items() if one in known}
    places = {one: every.within(one, offset) for one, offset in places.items()}
    return (_backwards if backwards else _forwards)(admin, every, places, wanted)


def _forwards(admin: Admin, positions: Positions, starts: Mapping[TopicPartition, int], wanted: Wanted) -> Page:
    scan = _Scan(admin, wanted)
    places, window = dict(starts), wanted.window
    while not scan.is_over:
        upper = {one: min(positions.ends[one], place + window) for one, place in places.items()}
        ranges = {one: (place, upper[one]) for one, place in places.items() if place < upper[one]}
        if not ranges:
            break
        places |= scan.read(ranges)
        window = min(_WINDOW_MAX, window * _GROWTH)
    ordered = _in_order(scan.found)
    shown, rest = ordered[: wanted.count], ordered[wanted.count :]
    # What does not fit on this page is the first of the next.
    for message in reversed(rest):
        one = TopicPartition(positions.partitions[0].topic, message.partition)
        places[one] = min(places[one], message.offset)
    following = {one.partition: place for one, place in places.items() if place < positions.ends[one]}
    return Page(tuple(shown), following, scan.scanned, scan.was_cut and len(shown) < wanted.count)


def _backwards(admin: Admin, positions: Positions, ends: Mapping[TopicPartition, int], wanted: Wanted) -> Page:
    scan = _Scan(admin, wanted)
    places, window = dict(ends), wanted.window
    while not scan.is_over:
        lower = {one: max(positions.starts[one], place - window) for one, place in places.items()}
        ranges = {one: (lower[one], place) for one, place in places.items() if lower[one] < place}
        if not ranges:
            break
        reached = scan.read(ranges)
        whole = {one for one, (_, upper) in ranges.items() if reached[one] >= upper}
        places |= {one: lower[one] for one in whole}
        if len(whole) == len(ranges):
            window = min(_WINDOW_MAX, window * _GROWTH)
            continue
        # To show the beginning of a range whose end was not reached would leave a hole.
        scan.drop({one.partition: lower[one] for one in ranges if one not in whole})
        if whole or scan.found or window == 1:
            break
        window = max(1, window // (2 * _GROWTH))
        scan.renew()
    newest_first = _in_order(scan.found)[::-1]
    shown, rest = newest_first[: wanted.count], newest_first[wanted.count :]
    for message in rest:
        one = TopicPartition(positions.partitions[0].topic, message.partition)
        places[one] = max(places[one], message.offset + 1)
    following = {one.partition: place for one, place in places.items() if place > positions.starts[one]}
    return Page(tuple(shown), following, scan.scanned, scan.was_cut and len(shown) < wanted.count)


class _Scan:
    """Reads ranges and keeps what matches, until there is a page of it or enough has been done."""

    def __init__(self, admin: Admin, wanted: Wanted) -> None:
        self._admin = admin
        self._wanted = wanted
        self._matches = wanted.matches
        self._until_s = monotonic() + _TIME_S_MAX
        self._bytes = 0
        self._last_ends: dict[int, int] = {}
        self.found: list[Message] = []
        self.scanned = 0
        self.was_cut = False

    @property
    def is_over(self) -> bool:
        return self.was_cut or len(self.found) >= self._wanted.count

    def renew(self) -> None:
        """Begin again, with all the time and bytes."""
        self._until_s, self._bytes, self.was_cut = monotonic() + _TIME_S_MAX, 0, False

    def drop(self, from_offsets: Mapping[int, int]) -> None:
        """Forget what the last ranges of these partitions had."""
        self.found = [
            one
            for one in self.found
            if one.partition not in from_offsets or not self._is_in_last(one, from_offsets[one.partition])
        ]

    def _is_in_last(self, message: Message, start: int) -> bool:
        return start <= message.offset < self._last_ends[message.partition]

    def read(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """Returns how far each of them was read."""
        starts = {one: start for one, (start, _) in ranges.items()}
        ends = {one: end for one, (_, end) in ranges.items()}
        self._last_ends = {one.partition: end for one, end in ends.items()}
        with RecordsReader(self._admin.client, starts, ends=ends, bytes_max=_FETCH_BYTES) as reader:
            while not reader.is_done:
                for run in reader.read(_READ_WAIT_MS):
                    number = run.partition.partition
                    self.scanned += len(run.records)
                    for one in run.records:
                        message = Message(number, one.offset, one.timestamp, one.key, one.value, one.headers)
                        if self._matches(message):
                            self.found.append(message)
                            self._bytes += message.size
                if self._bytes > self._wanted.bytes_max or monotonic() > self._until_s:
                    self.was_cut = True
                    break
            # A batch may go on behind the end that was asked for; those of its records were left out.
            return {one: min(place, ends[one]) for one, place in reader.positions.items()}


def _in_order(messages: Sequence[Message]) -> list[Message]:
    """By time, but never against the order of a partition, where times may go back."""
    latest: dict[int, int] = {}
    keys: list[tuple[int, int, int]] = []
    by_place = sorted(messages, key=lambda one: (one.partition, one.offset))
    for one in by_place:
        latest[one.partition] = max(one.timestamp_ms, latest.get(one.partition, one.timestamp_ms))
        keys.append((latest[one.partition], one.partition, one.offset))
    return [by_place[at] for at in sorted(range(len(by_place)), key=keys.__getitem__)]
