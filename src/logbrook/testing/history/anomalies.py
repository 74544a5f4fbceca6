"""The anomalies a checker can report: violated rules, with the facts that violate them.

An anomaly that follows from another at the same offset is not reported: a lost record also leaves a gap, and that is
one anomaly. A history has no anomalies only if it violates no rule.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Rule(Enum):
    """A rule that histories must follow. Its value is the sentence that reports a violation, with its facts."""

    LOST_WRITE = "{partition}: {value} of {producer}, acknowledged at {offset}, is lost; its offset holds {stored}"
    ACKNOWLEDGED_AT_OTHER_OFFSET = (
        "{partition}: {value} of {producer} was acknowledged at {offset}, but is at {actual_offset}; "
        "its offset holds {stored}"
    )
    TWO_VALUES = "{partition}: offset {offset} holds {first} for {first_by} and {second} for {second_by}"
    READ_THEN_LOST = "{partition}: {value}, read by {consumer} at {offset}, is missing at the end"
    NEVER_SENT = "{partition}: {reader} has {value} at {offset}, which no producer sent there"
    FAILED_WRITE_VISIBLE = "{partition}: {value} of {producer} was refused ({reason}), but is at {offset}"
    DUPLICATE = "{partition}: {value} of the idempotent {producer} is at the offsets {offsets}"
    REORDERED = (
        "{partition}: the idempotent {producer} sent {earlier} before {later}, "
        "but they are at {earlier_offset} and {later_offset}"
    )
    NOT_DENSE = "{partition}: nothing is at {offsets}, below the log's end"
    NO_FINAL_READ = "{partition}: was not read at the end, though {acknowledged} writes to it were acknowledged"
    """The history cannot be checked."""
    LOST_TOPIC = "topic {topic}, created with {created} partitions, has {remaining}"
    SKIPPED = "{partition}: {consumer} skipped {offsets}"
    READ_AGAIN = "{partition}: {consumer} expected offset {position} and received {offset} again"
    NEVER_READ = "{partition}: group {group} committed {committed} and never received {offsets}"
    LATEST_OFFSET_WENT_BACK = "{partition}: the latest offset was {was} and then {seen} for {client}"
    COMMIT_WENT_BACK = "{partition}: group {group} committed {committed} and then {client} found {seen}"
    COMMIT_NEVER_MADE = "{partition}: {client} found {seen} for group {group}, which was never committed"
    ABORTED_READ = "{partition}: {reader} received {value} at {offset}, of {transaction}, which was aborted"
    FENCED_READ = (
        "{partition}: {reader} received {value} at {offset}, of {transaction}, "
        "whose producer had been fenced by {fenced_by}"
    )
    UNCOMMITTED_READ = (
        "{partition}: {reader} received {value} at {offset}, of {transaction}, before its commit was requested"
    )
    LOST_COMMIT = "{transaction} of {producer} was committed, and none of its {values} values can be read"
    TORN_TRANSACTION = (
        "{transaction} of {producer}: {hidden} of its {values} values cannot be read, such as {value} of {partition}"
    )
    COMMITTED_RECORD_HIDDEN = "{partition}: read_committed consumers do not receive {offsets}"
    """Non-transactional records are invisible."""
    HANGING_TRANSACTION = (
        "{partition}: the last stable offset is {last_stable_offset} of {log_end_offset}, "
        "though every transaction has ended"
    )


@dataclass(frozen=True)
class Anomaly:
    """A violation of a rule, in one sentence."""

    rule: Rule
    sentence: str

    @classmethod
    def of(cls, rule: Rule, **facts: object) -> "Anomaly":
        """`facts` has those of the rule's sentence, and may have more."""
        shown = {name: "nothing" if fact is None else fact for name, fact in facts.items()}
        return cls(rule, rule.value.format(**shown))

    def __str__(self) -> str:
        return self.sentence


class OffsetSpan(NamedTuple):
    first: int
    last: int

    def __str__(self) -> str:
        return f"offset {self.first}" if self.first == self.last else f"offsets {self.first} to {self.last}"
