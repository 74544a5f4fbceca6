"""What a checker finds in a history: one type per broken rule, with the facts that break it.

A finding that follows from another at the same place is not told: a record that is lost leaves a gap, and that is one
finding. So the number of findings is of some use, and a history has none only if it breaks no rule.
"""

from dataclasses import dataclass

from logbrook.model import TopicPartition


@dataclass(frozen=True)
class Finding:
    """A rule that does not hold. Prints as a sentence."""

    @property
    def rule(self) -> str:
        return type(self).__name__


@dataclass(frozen=True)
class LostWrite(Finding):
    partition: TopicPartition
    offset: int
    producer: str
    value: str
    found: str | None
    """What is at its offset instead, if anything is."""

    def __str__(self) -> str:
        instead = "" if self.found is None else f"; its offset holds {self.found}"
        return f"{self.partition}: {self.value} of {self.producer}, acknowledged at {self.offset}, is lost{instead}"


@dataclass(frozen=True)
class AcknowledgedElsewhere(Finding):
    partition: TopicPartition
    offset: int
    producer: str
    value: str
    found_at: int
    found: str | None

    def __str__(self) -> str:
        found = "nothing" if self.found is None else self.found
        return (
            f"{self.partition}: {self.value} of {self.producer} was acknowledged at {self.offset}, "
            f"but is at {self.found_at}; its offset holds {found}"
        )


@dataclass(frozen=True)
class TwoValues(Finding):
    partition: TopicPartition
    offset: int
    first: str
    first_by: str
    second: str
    second_by: str

    def __str__(self) -> str:
        return (
            f"{self.partition}: offset {self.offset} holds {self.first} for {self.first_by} "
            f"and {self.second} for {self.second_by}"
        )


@dataclass(frozen=True)
class Vanished(Finding):
    partition: TopicPartition
    offset: int
    value: str
    consumer: str

    def __str__(self) -> str:
        return (
            f"{self.partition}: {self.value} was read by {self.consumer} at {self.offset}, where nothing is at the end"
        )


@dataclass(frozen=True)
class Unsent(Finding):
    partition: TopicPartition
    offset: int
    value: str
    reader: str

    def __str__(self) -> str:
        return f"{self.partition}: {self.reader} has {self.value} at {self.offset}, which nobody sent there"


@dataclass(frozen=True)
class FailedButThere(Finding):
    partition: TopicPartition
    offset: int
    producer: str
    value: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.partition}: {self.value} of {self.producer} was refused ({self.reason}), yet it is at {self.offset}"
        )


@dataclass(frozen=True)
class Duplicate(Finding):
    partition: TopicPartition
    offsets: tuple[int, ...]
    producer: str
    value: str

    def __str__(self) -> str:
        places = " and ".join(map(str, self.offsets))
        return f"{self.partition}: {self.value} of the idempotent {self.producer} is at {places}"


@dataclass(frozen=True)
class Reordered(Finding):
    partition: TopicPartition
    producer: str
    earlier: str
    earlier_offset: int
    later: str
    later_offset: int

    def __str__(self) -> str:
        return (
            f"{self.partition}: the idempotent {self.producer} sent {self.earlier} before {self.later}, "
            f"but they are at {self.earlier_offset} and {self.later_offset}"
        )


@dataclass(frozen=True)
class NotDense(Finding):
    partition: TopicPartition
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.partition}: nothing is at {_offsets(self.first, self.last)}, below the log's end"


@dataclass(frozen=True)
class NotRead(Finding):
    """The history cannot be judged: it has no final read of a partition that was written to."""

    partition: TopicPartition
    acknowledged: int

    def __str__(self) -> str:
        return f"{self.partition}: was not read at the end, though {self.acknowledged} writes to it were acknowledged"


@dataclass(frozen=True)
class LostTopic(Finding):
    topic: str
    created: int
    found: int | None

    def __str__(self) -> str:
        found = "is gone" if self.found is None else f"has {self.found}"
        return f"topic {self.topic}, created with {self.created} partitions, {found}"


@dataclass(frozen=True)
class Skipped(Finding):
    partition: TopicPartition
    consumer: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.partition}: {self.consumer} passed over {_offsets(self.first, self.last)}"


@dataclass(frozen=True)
class ReadAgain(Finding):
    partition: TopicPartition
    consumer: str
    position: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}: {self.consumer} was to get {self.position} and got {self.offset} again"


@dataclass(frozen=True)
class NeverRead(Finding):
    partition: TopicPartition
    group: str
    first: int
    last: int
    committed: int

    def __str__(self) -> str:
        offsets = _offsets(self.first, self.last)
        return f"{self.partition}: group {self.group} committed {self.committed} and never got {offsets}"


@dataclass(frozen=True)
class LatestWentBack(Finding):
    partition: TopicPartition
    was: int
    seen: int
    client: str

    def __str__(self) -> str:
        return f"{self.partition}: the latest offset was {self.was} and then {self.seen} for {self.client}"


@dataclass(frozen=True)
class CommitWentBack(Finding):
    partition: TopicPartition
    group: str
    committed: int
    seen: int | None
    client: str

    def __str__(self) -> str:
        seen = "none" if self.seen is None else str(self.seen)
        return f"{self.partition}: group {self.group} committed {self.committed} and then {self.client} found {seen}"


@dataclass(frozen=True)
class CommitFromNowhere(Finding):
    partition: TopicPartition
    group: str
    seen: int
    client: str

    def __str__(self) -> str:
        return f"{self.partition}: {self.client} found {self.seen} as the offset of {self.group}; nobody committed it"


@dataclass(frozen=True)
class AbortedRead(Finding):
    partition: TopicPartition
    offset: int
    transaction: str
    value: str
    reader: str

    def __str__(self) -> str:
        return (
            f"{self.partition}: {self.reader} was given {self.value} at {self.offset}, "
            f"of {self.transaction}, which was aborted"
        )


@dataclass(frozen=True)
class FencedRead(Finding):
    partition: TopicPartition
    offset: int
    transaction: str
    value: str
    reader: str
    fenced_by: str

    def __str__(self) -> str:
        return (
            f"{self.partition}: {self.reader} was given {self.value} at {self.offset}, "
            f"of {self.transaction}, which was not to be committed since {self.fenced_by} has its producer's id"
        )


@dataclass(frozen=True)
class UncommittedRead(Finding):
    partition: TopicPartition
    offset: int
    transaction: str
    value: str
    reader: str

    def __str__(self) -> str:
        return (
            f"{self.partition}: {self.reader} was given {self.value} at {self.offset}, "
            f"of {self.transaction}, before anybody asked for its commit"
        )


@dataclass(frozen=True)
class LostCommit(Finding):
    transaction: str
    producer: str
    values: int

    def __str__(self) -> str:
        return f"{self.transaction} of {self.producer} was committed, and none of its {self.values} values can be read"


@dataclass(frozen=True)
class TornTransaction(Finding):
    transaction: str
    producer: str
    values: int
    hidden: int
    partition: TopicPartition
    value: str

    def __str__(self) -> str:
        return (
            f"{self.transaction} of {self.producer}: {self.hidden} of its {self.values} values cannot be read, "
            f"such as {self.value} of {self.partition}"
        )


@dataclass(frozen=True)
class Hidden(Finding):
    """Records of no transaction that readers of committed records are not given."""

    partition: TopicPartition
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.partition}: readers of committed records are not given {_offsets(self.first, self.last)}"


@dataclass(frozen=True)
class HangingTransaction(Finding):
    """Nobody is left who would end a transaction, and it is open."""

    partition: TopicPartition
    last_stable_offset: int
    log_end_offset: int

    def __str__(self) -> str:
        return (
            f"{self.partition}: committed records can be read to {self.last_stable_offset} of "
            f"{self.log_end_offset}, though every transaction is over"
        )


def _offsets(first: int, last: int) -> str:
    return f"offset {first}" if first == last else f"offsets {first} to {last}"
