"""What clients saw of a broker, as facts with a time.

`at_ns` is monotonic, of one clock for all clients, and taken after the client knew. What took a while carries
`begun_at_ns` too: the moment before it was asked for, so that two such events are in order only if one ended before the
other began.

A value is known by its id, which no two writes share: a client that writes again after an answer it never got writes a
new value. (A retry inside of a client library is not a new write.) Partitions are `TopicPartition`s.
"""

from typing import NamedTuple

from logbrook.model import TopicPartition


class ProducerStarted(NamedTuple):
    """Comes before what the producer sent."""

    at_ns: int
    producer: str
    idempotent: bool


class Sent(NamedTuple):
    """A value was handed to the producer. The order of a producer's sent values is the order they are to be in."""

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
    """It is certain that the value was not written: it never left, or each answer said no."""

    at_ns: int
    producer: str
    partition: TopicPartition
    value: str
    reason: str


class Unknown(NamedTuple):
    """A timeout or a disconnect: the value may be there or not, and may even come later."""

    at_ns: int
    producer: str
    partition: TopicPartition
    value: str
    reason: str


class TransactionalIdTaken(NamedTuple):
    """The broker has let the producer have a transactional id: whoever had it before can commit nothing any more."""

    at_ns: int
    producer: str
    transactional_id: str


class TransactionBegun(NamedTuple):
    """What the producer sends from here on belongs to the transaction, until it begins another."""

    at_ns: int
    producer: str
    transaction: str


class TransactionCommitted(NamedTuple):
    """The commit was acknowledged: every value is to be seen."""

    at_ns: int
    begun_at_ns: int
    producer: str
    transaction: str


class TransactionUnknown(NamedTuple):
    """A commit without an answer: every value is to be seen, or none is."""

    at_ns: int
    begun_at_ns: int
    producer: str
    transaction: str
    reason: str


class TransactionFailed(NamedTuple):
    """It is certain that the commit was refused: no value is to be seen."""

    at_ns: int
    begun_at_ns: int
    producer: str
    transaction: str
    reason: str


class TransactionAborted(NamedTuple):
    """The abort was acknowledged: no value is to be seen."""

    at_ns: int
    producer: str
    transaction: str


class Polled(NamedTuple):
    """A consumer, which reads committed records only, was given one. `group` is empty for one that is in no group."""

    at_ns: int
    consumer: str
    group: str
    partition: TopicPartition
    offset: int
    value: str


class Resumed(NamedTuple):
    """The consumer's next record of this partition is not the one after its last: it starts at `offset`.

    A member of a group starts at what the group has committed, and at the first record if it has not.
    """

    at_ns: int
    begun_at_ns: int
    consumer: str
    group: str
    partition: TopicPartition
    offset: int


class Committed(NamedTuple):
    """A commit that was acknowledged."""

    at_ns: int
    begun_at_ns: int
    group: str
    partition: TopicPartition
    offset: int


class CommitUnknown(NamedTuple):
    """A commit without an acknowledgement. It may take effect as long as the broker that got it lives."""

    at_ns: int
    begun_at_ns: int
    group: str
    partition: TopicPartition
    offset: int


class CommittedSeen(NamedTuple):
    """The answer to the question for a group's committed offset; None if there is none."""

    at_ns: int
    begun_at_ns: int
    client: str
    group: str
    partition: TopicPartition
    offset: int | None


class LatestSeen(NamedTuple):
    """The answer to the question for a partition's latest offset: that of the next record."""

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
    """The broker answers."""

    at_ns: int


class BrokerKilled(NamedTuple):
    """The broker's process is gone, and with it every request that it had not handled."""

    at_ns: int


class BrokerStopped(NamedTuple):
    """The broker's process ended by itself, as it was asked to."""

    at_ns: int


class FinalTopics(NamedTuple):
    """The topics at the end, and how many partitions each has."""

    at_ns: int
    topics: dict[str, int]


class FinalRead(NamedTuple):
    """A partition at the end, read from its start to its end: offsets and values, committed or not."""

    at_ns: int
    begun_at_ns: int
    partition: TopicPartition
    log_end_offset: int
    records: list[tuple[int, str]]


class FinalCommittedRead(NamedTuple):
    """What a reader of committed records is given of a partition at the end, and how far it can read."""

    at_ns: int
    partition: TopicPartition
    last_stable_offset: int
    records: list[tuple[int, str]]


class FinalMarkers(NamedTuple):
    """The offsets that the ends of transactions take in a partition, at the end."""

    at_ns: int
    partition: TopicPartition
    offsets: list[int]


Event = (
    ProducerStarted
    | Sent
    | Acknowledged
    | Failed
    | Unknown
    | TransactionalIdTaken
    | TransactionBegun
    | TransactionCommitted
    | TransactionUnknown
    | TransactionFailed
    | TransactionAborted
    | Polled
    | Resumed
    | Committed
    | CommitUnknown
    | CommittedSeen
    | LatestSeen
    | TopicCreated
    | BrokerStarted
    | BrokerKilled
    | BrokerStopped
    | FinalTopics
    | FinalRead
    | FinalCommittedRead
    | FinalMarkers
)
