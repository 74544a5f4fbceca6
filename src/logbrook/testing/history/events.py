"""The events of a history: what clients sent and observed, with timestamps, and their JSON Lines format.

`at_ns` is the time at which the client learned of the event, on one monotonic clock for all clients. Operations carry
`begun_at_ns` too, the time just before the request was sent: two operations are ordered only if one ended before the
other began.

Every write has a unique value: a client that writes again after a lost response writes a new value. (A retry inside a
client library is not a new write.)
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Concatenate, NamedTuple, ParamSpec, TextIO, get_args

from logbrook.model import TopicPartition


class ProducerStarted(NamedTuple):
    """Precedes everything the producer sent."""

    at_ns: int
    producer: str
    idempotent: bool


class Sent(NamedTuple):
    """A value was handed to the producer. Its values must appear in the log in the order in which they were sent."""

    at_ns: int
    producer: str
    partition: TopicPartition
    value: str


class Acknowledged(NamedTuple):
    at_ns: int
    producer: str
    partition: TopicPartition
    offset: int
    value: str


class Failed(NamedTuple):
    """The value was certainly not written: it was never sent, or every response was an error."""

    at_ns: int
    producer: str
    partition: TopicPartition
    value: str
    reason: str


class Unknown(NamedTuple):
    """A timeout or a disconnect: the value may or may not be written, now or later."""

    at_ns: int
    producer: str
    partition: TopicPartition
    value: str
    reason: str


class TransactionalIdTaken(NamedTuple):
    """InitProducerId succeeded: earlier producers with this transactional id are fenced."""

    at_ns: int
    producer: str
    transactional_id: str


class TransactionBegun(NamedTuple):
    """The producer's later values belong to this transaction, until it begins another."""

    at_ns: int
    producer: str
    transaction: str


class TransactionCommitted(NamedTuple):
    """The commit was acknowledged: every value must be visible."""

    at_ns: int
    begun_at_ns: int
    producer: str
    transaction: str


class TransactionUnknown(NamedTuple):
    """The commit got no response: either every value must be visible or none."""

    at_ns: int
    begun_at_ns: int
    producer: str
    transaction: str
    reason: str


class TransactionFailed(NamedTuple):
    """The commit was certainly refused: no value may be visible."""

    at_ns: int
    begun_at_ns: int
    producer: str
    transaction: str
    reason: str


class TransactionAborted(NamedTuple):
    """The abort was acknowledged: no value may be visible."""

    at_ns: int
    producer: str
    transaction: str


class Polled(NamedTuple):
    """A read_committed consumer received a record. `group` is empty for a consumer without a group."""

    at_ns: int
    consumer: str
    group: str
    partition: TopicPartition
    offset: int
    value: str


class Resumed(NamedTuple):
    """The consumer's position in the partition was set to `offset`.

    A member of a group starts at the group's committed offset, or at the first record if there is none.
    """

    at_ns: int
    begun_at_ns: int
    consumer: str
    group: str
    partition: TopicPartition
    offset: int


class Committed(NamedTuple):
    """An offset commit was acknowledged."""

    at_ns: int
    begun_at_ns: int
    group: str
    partition: TopicPartition
    offset: int


class CommitUnknown(NamedTuple):
    """An offset commit got no response. It may take effect until the broker process that received it ends."""

    at_ns: int
    begun_at_ns: int
    group: str
    partition: TopicPartition
    offset: int


class CommittedSeen(NamedTuple):
    """The result of an OffsetFetch; None if the group has no committed offset."""

    at_ns: int
    begun_at_ns: int
    client: str
    group: str
    partition: TopicPartition
    offset: int | None


class LatestSeen(NamedTuple):
    """The result of a ListOffsets for the latest offset, the offset of the next record."""

    at_ns: int
    begun_at_ns: int
    client: str
    partition: TopicPartition
    offset: int


class TopicCreated(NamedTuple):
    """The creation of a topic was acknowledged."""

    at_ns: int
    topic: str
    partitions: int


class BrokerStarted(NamedTuple):
    """The broker responded for the first time after its start."""

    at_ns: int


class BrokerKilled(NamedTuple):
    """The broker's process was killed; requests it had not handled are lost."""

    at_ns: int


class BrokerStopped(NamedTuple):
    """The broker's process stopped cleanly."""

    at_ns: int


class FinalTopics(NamedTuple):
    """The topics at the end, with their partition counts."""

    at_ns: int
    topics: dict[str, int]


class FinalRead(NamedTuple):
    """The complete content of a partition at the end, read with read_uncommitted: offsets and values."""

    at_ns: int
    begun_at_ns: int
    partition: TopicPartition
    log_end_offset: int
    records: list[tuple[int, str]]


class FinalCommittedRead(NamedTuple):
    """The content of a partition at the end, read with read_committed, and its last stable offset."""

    at_ns: int
    partition: TopicPartition
    last_stable_offset: int
    records: list[tuple[int, str]]


class FinalMarkers(NamedTuple):
    """The offsets of transaction markers in a partition, at the end."""

    at_ns: int
    partition: TopicPartition
    offsets: list[int]


class FinalProducers(NamedTuple):
    """The batches of idempotent producers in a partition, at the end: first and next offset, producer id and epoch."""

    at_ns: int
    partition: TopicPartition
    batches: Sequence[tuple[int, int, int, int]]


_ProducerEvent = ProducerStarted | Sent | Acknowledged | Failed | Unknown | TransactionalIdTaken
_CommitEvent = TransactionCommitted | TransactionUnknown | TransactionFailed
_TransactionEvent = TransactionBegun | _CommitEvent | TransactionAborted
_ConsumerEvent = Polled | Resumed | Committed | CommitUnknown | CommittedSeen | LatestSeen
_BrokerEvent = TopicCreated | BrokerStarted | BrokerKilled | BrokerStopped
_FinalEvent = FinalTopics | FinalRead | FinalCommittedRead | FinalMarkers | FinalProducers
Event = _ProducerEvent | _TransactionEvent | _ConsumerEvent | _BrokerEvent | _FinalEvent

_KINDS = {kind.__name__: kind for kind in get_args(Event)}
_Fields = ParamSpec("_Fields")


class Recorder:
    """Collects the events of clients from any number of threads. `now_ns` is the monotonic clock of all events.

    There is no lock: some client libraries invoke callbacks while an exception is pending, and a lock acquired then may
    never be released. Appending to a list is atomic. Callers take `now_ns()` just before a request.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self._events: list[Event] = []

    def record(
        self, kind: Callable[Concatenate[int, _Fields], Event], *args: _Fields.args, **kwargs: _Fields.kwargs
    ) -> None:
        """Record an event of this kind with the current time and the given further fields."""
        self._events.append(kind(self.now_ns(), *args, **kwargs))

    @property
    def count(self) -> int:
        return len(self._events)

    def since(self, count: int) -> list[Event]:
        """The events after the first `count`, in the order in which they were recorded."""
        return self._events[count:]

    def events(self) -> list[Event]:
        """The events recorded so far, in time order."""
        return sorted(self._events, key=attrgetter("at_ns"))


def save(events: Iterable[Event], file: TextIO) -> None:
    """Write one JSON array per event: its kind, then its fields in order."""
    for event in events:
        json.dump([type(event).__name__, *event], file, separators=(",", ":"))
        file.write("\n")


def load(file: TextIO) -> Iterator[Event]:
    """Read what `save` wrote. Raises ValueError for a line that is not an event."""
    for number, line in enumerate(file, 1):
        try:
            kind, *values = json.loads(line)
            yield _event(kind, values)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"line {number} is not an event: {error}") from error


def _event(kind: str, values: list[object]) -> Event:
    cls = _KINDS[kind]
    fields = dict(zip(cls._fields, values, strict=True))
    match fields.get("partition"):
        case [str(topic), int(number)]:
            fields["partition"] = TopicPartition(topic, number)
    match fields.get("records"):
        case list(records):
            fields["records"] = [(offset, value) for offset, value in records]
    event: Event = cls(**fields)
    return event
