"""Bugs to plant in a valid history, each with the anomalies that must be found.

A plant gets a history and returns it with one bug, or None if the history has no place for it.
"""

from collections.abc import Callable
from itertools import takewhile
from random import Random
from typing import NamedTuple

from logbrook.model import TopicPartition
from logbrook.testing.history import Event
from logbrook.testing.history.anomalies import Rule
from logbrook.testing.history.events import (
    Acknowledged,
    BrokerKilled,
    Committed,
    CommittedSeen,
    CommitUnknown,
    Failed,
    FinalCommittedRead,
    FinalRead,
    FinalTopics,
    LatestSeen,
    Polled,
    Resumed,
    Sent,
    TopicCreated,
    TransactionAborted,
    TransactionBegun,
    TransactionCommitted,
    TransactionFailed,
    TransactionUnknown,
    Unknown,
)
from tests.unit.testing.history.good import IDEMPOTENT

Planter = Callable[["Garden"], list[Event] | None]


class Plant(NamedTuple):
    planter: Planter
    rule: Rule
    anomalies: int

    def plant(self, events: list[Event], rng: Random) -> list[Event] | None:
        return self.planter(Garden(events, rng))


PLANTS: dict[str, Plant] = {}


def finds(rule: Rule, anomalies: int = 1) -> Callable[[Planter], Planter]:
    def register(planter: Planter) -> Planter:
        PLANTS[planter.__name__] = Plant(planter, rule, anomalies)
        return planter

    return register


class Garden:
    """A history with the facts that plants need."""

    def __init__(self, events: list[Event], rng: Random) -> None:
        self.events = events
        self.rng = rng
        self.finals = {event.partition: event for event in events if isinstance(event, FinalRead)}
        self.committed = {event.partition: event for event in events if isinstance(event, FinalCommittedRead)}
        self.transactions = sent_in_transactions(events)
        self.transactional = {event.value for sent in self.transactions.values() for event in sent}
        self.acknowledged = [
            event for event in events if isinstance(event, Acknowledged) and event.value not in self.transactional
        ]
        self.acknowledged_at = {(event.partition, event.offset) for event in self.acknowledged}
        self.polled_at = {(event.partition, event.offset) for event in events if isinstance(event, Polled)}

    def records(self, *, acknowledged: bool, polled: bool, once: bool = True) -> list[tuple[TopicPartition, int]]:
        """Return positions in the final logs of records outside transactions, selected by acknowledgement and poll."""
        places = []
        for partition, final in self.finals.items():
            values = [value for _, value in final.records]
            for offset, value in final.records:
                at = (partition, offset)
                facts = (at in self.acknowledged_at, at in self.polled_at, values.count(value) == 1)
                if facts == (acknowledged, polled, once) and value not in self.transactional:
                    places.append(at)
        return places

    def pick(self, places: list[tuple[TopicPartition, int]]) -> tuple[TopicPartition, int] | None:
        return self.rng.choice(places) if places else None

    def with_final(
        self, partition: TopicPartition, records: list[tuple[int, str]], log_end_offset: int | None = None
    ) -> list[Event]:
        final = self.finals[partition]
        end = final.log_end_offset if log_end_offset is None else log_end_offset
        committed = self.committed[partition]
        hidden = {value for _, value in final.records} - {value for _, value in committed.records}
        visible = [(offset, value) for offset, value in records if value not in hidden]
        new: dict[int, Event] = {
            id(final): final._replace(records=records, log_end_offset=end),
            id(committed): committed._replace(records=visible, last_stable_offset=end),
        }
        return [new.get(id(event), event) for event in self.events]

    def with_visible(self, partition: TopicPartition, shown: set[str], hidden: set[str]) -> list[Event]:
        """Add some values to the final read_committed reads, and remove others."""
        committed = self.committed[partition]
        visible = {value for _, value in committed.records} | shown
        records = [record for record in self.finals[partition].records if record[1] in visible - hidden]
        return self.replace(committed, committed._replace(records=records))

    def of_transactions(self, *ends: type[Event] | None) -> list[tuple[TopicPartition, int, str, str]]:
        """Return positions, values and transactions in the final logs, for transactions with this end (None: open)."""
        ended = {
            event.transaction: type(event)
            for event in self.events
            if isinstance(event, TransactionCommitted | TransactionUnknown | TransactionFailed | TransactionAborted)
        }
        of = {event.value: name for name, sent in self.transactions.items() for event in sent}
        return [
            (partition, offset, value, of[value])
            for partition, final in self.finals.items()
            for offset, value in final.records
            if value in of and ended.get(of[value]) in ends
        ]

    def replace(self, old: Event, new: Event) -> list[Event]:
        return [new if event is old else event for event in self.events]

    def without(self, *gone: Event) -> list[Event]:
        return [event for event in self.events if all(event is not removed for removed in gone)]

    def without_record(self, at: tuple[TopicPartition, int] | None) -> list[Event] | None:
        if at is None:
            return None
        partition, offset = at
        return self.with_final(partition, [record for record in self.finals[partition].records if record[0] != offset])

    def swapped(self, places: list[tuple[TopicPartition, int]]) -> list[Event] | None:
        partition = self.rng.choice(list(self.finals))
        offsets = [offset for place, offset in places if place == partition]
        if len(offsets) < 2:
            return None
        first, second = self.rng.sample(offsets, 2)
        records = dict(self.finals[partition].records)
        records[first], records[second] = records[second], records[first]
        return self.with_final(partition, list(records.items()))


def sent_in_transactions(events: list[Event]) -> dict[str, list[Sent]]:
    """Return the sent records of each transaction, in order."""
    by_transaction: dict[str, list[Sent]] = {}
    current: dict[str, str] = {}
    for event in events:
        if isinstance(event, TransactionBegun):
            current[event.producer] = event.transaction
            by_transaction[event.transaction] = []
        elif isinstance(event, Sent) and event.producer in current:
            by_transaction[current[event.producer]].append(event)
    return by_transaction


@finds(Rule.LOST_WRITE)
def drop_an_acknowledged_record(garden: Garden) -> list[Event] | None:
    polled = garden.rng.random() < 0.5
    return garden.without_record(garden.pick(garden.records(acknowledged=True, polled=polled)))


@finds(Rule.LOST_WRITE)
def cut_an_acknowledged_record_off_the_end(garden: Garden) -> list[Event] | None:
    ends = [(partition, final.log_end_offset - 1) for partition, final in garden.finals.items()]
    at = garden.pick([at for at in garden.records(acknowledged=True, polled=False) if at in ends])
    if at is None:
        return None
    partition, offset = at
    return garden.with_final(partition, garden.finals[partition].records[:-1], offset)


@finds(Rule.LOST_WRITE)
def give_the_offset_of_an_acknowledged_record_to_another(garden: Garden) -> list[Event] | None:
    at = garden.pick(garden.records(acknowledged=True, polled=False))
    if at is None:
        return None
    partition, offset = at
    records = dict(garden.finals[partition].records) | {offset: "intruder"}
    return [
        Sent(1, "plain-0", partition, "intruder"),
        Unknown(2, "plain-0", partition, "intruder", "disconnected"),
        *garden.with_final(partition, list(records.items())),
    ]


@finds(Rule.ACKNOWLEDGED_AT_OTHER_OFFSET, 2)
def swap_two_values_nobody_polled(garden: Garden) -> list[Event] | None:
    return garden.swapped(garden.records(acknowledged=True, polled=False))


@finds(Rule.TWO_VALUES, 2)
def swap_two_values_that_were_polled(garden: Garden) -> list[Event] | None:
    return garden.swapped(garden.records(acknowledged=True, polled=True))


@finds(Rule.ACKNOWLEDGED_AT_OTHER_OFFSET)
def acknowledge_an_offset_that_holds_another_value(garden: Garden) -> list[Event] | None:
    """The offset is that of a record whose acknowledgement never came."""
    for event in garden.rng.sample(garden.acknowledged, len(garden.acknowledged)):
        below = [
            offset for place, offset in garden.records(acknowledged=False, polled=False) if place == event.partition
        ]
        below = [offset for offset in below if offset < event.offset]
        if below:
            return garden.replace(event, event._replace(offset=garden.rng.choice(below)))
    return None


@finds(Rule.TWO_VALUES)
def acknowledge_one_offset_twice(garden: Garden) -> list[Event] | None:
    event = garden.rng.choice(garden.acknowledged)
    final = garden.finals[event.partition]
    record = (final.log_end_offset, "intruder")
    return [
        Sent(1, "plain-0", event.partition, "intruder"),
        *garden.with_final(event.partition, [*final.records, record], final.log_end_offset + 1),
        Acknowledged(event.at_ns, "plain-0", event.partition, event.offset, "intruder"),
    ]


@finds(Rule.TWO_VALUES)
def read_one_offset_twice_at_the_end(garden: Garden) -> list[Event] | None:
    at = garden.pick(garden.records(acknowledged=True, polled=True))
    if at is None:
        return None
    partition, offset = at
    final = garden.finals[partition]
    return [
        Sent(1, "plain-0", partition, "intruder"),
        *garden.with_final(partition, [(offset, "intruder"), *final.records]),
    ]


@finds(Rule.TWO_VALUES)
def show_one_consumer_another_value(garden: Garden) -> list[Event] | None:
    for event in garden.rng.sample(garden.events, len(garden.events)):
        if isinstance(event, Polled):
            others = [value for _, value in garden.finals[event.partition].records if value != event.value]
            if others:
                return garden.replace(event, event._replace(value=garden.rng.choice(others)))
    return None


@finds(Rule.DUPLICATE)
def write_an_idempotent_value_again(garden: Garden) -> list[Event] | None:
    values = {event.value for event in garden.acknowledged if event.producer in IDEMPOTENT}
    partition = garden.rng.choice(list(garden.finals))
    final = garden.finals[partition]
    again = [value for _, value in final.records if value in values]
    if not again:
        return None
    record = (final.log_end_offset, garden.rng.choice(again))
    return garden.with_final(partition, [*final.records, record], final.log_end_offset + 1)


@finds(Rule.REORDERED)
def swap_what_an_idempotent_producer_sent(garden: Garden) -> list[Event] | None:
    partition, producer = garden.rng.choice(list(garden.finals)), garden.rng.choice(IDEMPOTENT)
    there = {value for _, value in garden.finals[partition].records}
    sent = [
        event
        for event in garden.events
        if isinstance(event, Sent)
        and (event.producer, event.partition) == (producer, partition)
        and event.value in there
    ]
    if len(sent) < 2:
        return None
    number = garden.rng.randrange(len(sent) - 1)
    first, second = sent[number], sent[number + 1]
    renamed = {id(first): first._replace(value=second.value), id(second): second._replace(value=first.value)}
    return [renamed.get(id(event), event) for event in garden.events]


@finds(Rule.NEVER_SENT)
def append_what_nobody_sent(garden: Garden) -> list[Event] | None:
    partition = garden.rng.choice(list(garden.finals))
    final = garden.finals[partition]
    return garden.with_final(partition, [*final.records, (final.log_end_offset, "stranger")], final.log_end_offset + 1)


@finds(Rule.NEVER_SENT)
def send_a_value_to_another_partition(garden: Garden) -> list[Event] | None:
    at = garden.pick(garden.records(acknowledged=False, polled=garden.rng.random() < 0.5))
    if at is None:
        return None
    value = dict(garden.finals[at[0]].records)[at[1]]
    target = next(partition for partition in garden.finals if partition != at[0])
    return [
        event._replace(partition=target) if isinstance(event, Sent | Unknown) and event.value == value else event
        for event in garden.events
    ]


@finds(Rule.FAILED_WRITE_VISIBLE)
def refuse_a_write_that_is_there(garden: Garden) -> list[Event] | None:
    there = {value for final in garden.finals.values() for _, value in final.records}
    unknown = [event for event in garden.events if isinstance(event, Unknown) and event.value in there]
    unknown = [event for event in unknown if event.producer in IDEMPOTENT]
    if not unknown:
        return None
    event = garden.rng.choice(unknown)
    return garden.replace(event, Failed(*event))


@finds(Rule.NOT_DENSE)
def leave_a_gap(garden: Garden) -> list[Event] | None:
    return garden.without_record(garden.pick(garden.records(acknowledged=False, polled=False)))


@finds(Rule.NOT_DENSE)
def end_past_the_last_record(garden: Garden) -> list[Event] | None:
    partition = garden.rng.choice(list(garden.finals))
    final = garden.finals[partition]
    return garden.with_final(partition, final.records, final.log_end_offset + garden.rng.randint(1, 9))


@finds(Rule.READ_THEN_LOST)
def drop_a_record_that_was_only_polled(garden: Garden) -> list[Event] | None:
    return garden.without_record(garden.pick(garden.records(acknowledged=False, polled=True)))


@finds(Rule.NO_FINAL_READ)
def forget_to_read_a_partition(garden: Garden) -> list[Event] | None:
    return garden.without(garden.finals[garden.rng.choice([event.partition for event in garden.acknowledged])])


@finds(Rule.LOST_TOPIC)
def lose_a_topic_or_one_of_its_partitions(garden: Garden) -> list[Event] | None:
    created = [event for event in garden.events if isinstance(event, TopicCreated)]
    if not created:
        return None
    topic = garden.rng.choice(created).topic
    final = next(event for event in garden.events if isinstance(event, FinalTopics))
    topics = dict(final.topics)
    topics[topic] -= 1
    if garden.rng.random() < 0.5:
        del topics[topic]
    return garden.replace(final, final._replace(topics=topics))


def reads_of(garden: Garden, event: Polled) -> list[Polled | Resumed]:
    """Return all reads of the event's partition by its consumer."""
    return [
        read
        for read in garden.events
        if isinstance(read, Polled | Resumed) and (read.consumer, read.partition) == (event.consumer, event.partition)
    ]


@finds(Rule.SKIPPED)
def pass_over_a_record(garden: Garden) -> list[Event] | None:
    for event in garden.rng.sample(garden.events, len(garden.events)):
        if isinstance(event, Polled):
            reads = reads_of(garden, event)
            at = next(number for number, read in enumerate(reads) if read is event)
            if isinstance(reads[at - 1], Polled) and at + 1 < len(reads) and isinstance(reads[at + 1], Polled):
                return garden.without(event)
    return None


@finds(Rule.NEVER_READ)
def commit_what_was_never_given(garden: Garden) -> list[Event] | None:
    """Commit the last record before the group's last commit, if no member read past it without a reset."""
    commits = [event for event in garden.events if isinstance(event, Committed) and event.offset > 0]
    for commit in garden.rng.sample(commits, len(commits)):
        highest = max(
            earlier.offset
            for earlier in commits
            if (earlier.group, earlier.partition) == (commit.group, commit.partition)
        )
        polled = [
            poll
            for poll in garden.events
            if isinstance(poll, Polled) and (poll.group, poll.partition) == (commit.group, commit.partition)
        ]
        gone = [poll for poll in polled if poll.offset == highest - 1]
        lasts = [reads_of(garden, poll) for poll in gone]
        is_last = [
            reads[-1] is poll or isinstance(reads[next(n for n, read in enumerate(reads) if read is poll) + 1], Resumed)
            for poll, reads in zip(gone, lasts, strict=True)
        ]
        if commit.offset == highest and all(is_last):
            return garden.without(*gone)
    return None


@finds(Rule.READ_AGAIN)
def give_a_record_again(garden: Garden) -> list[Event] | None:
    # After a kill, a consumer may receive again what it has received since, and its first record at any time.
    before_kills = list(takewhile(lambda event: not isinstance(event, BrokerKilled), garden.events))
    first = {(event.consumer, event.partition, event.offset) for event in before_kills if isinstance(event, Resumed)}
    polled = [
        event
        for event in before_kills
        if isinstance(event, Polled) and (event.consumer, event.partition, event.offset) not in first
    ]
    if not polled:
        return None
    event = garden.rng.choice(polled)
    return [copy for original in garden.events for copy in ((original, original) if original is event else (original,))]


@finds(Rule.LATEST_OFFSET_WENT_BACK)
def answer_an_older_latest_offset(garden: Garden) -> list[Event] | None:
    for event in garden.rng.sample(garden.events, len(garden.events)):
        if isinstance(event, LatestSeen):
            before = [
                ack.offset + 1
                for ack in garden.acknowledged
                if ack.partition == event.partition and ack.at_ns < event.begun_at_ns
            ]
            if before:
                return garden.replace(event, event._replace(offset=garden.rng.randrange(max(before))))
    return None


@finds(Rule.COMMIT_WENT_BACK)
def lose_a_commit(garden: Garden) -> list[Event] | None:
    for event in garden.rng.sample(garden.events, len(garden.events)):
        if isinstance(event, CommittedSeen):
            commits = [
                earlier
                for earlier in garden.events
                if isinstance(earlier, Committed | CommitUnknown)
                and (earlier.group, earlier.partition) == (event.group, event.partition)
                and earlier.at_ns < event.begun_at_ns
            ]
            unknown = {earlier.offset for earlier in commits if isinstance(earlier, CommitUnknown)}
            sure = [earlier.offset for earlier in commits if isinstance(earlier, Committed)]
            older = [offset for offset in sure if offset < sure[-1] and offset not in unknown]
            if sure and sure[-1] > 0:
                return garden.replace(event, event._replace(offset=garden.rng.choice([None, *older])))
    return None


@finds(Rule.COMMIT_WENT_BACK)
def begin_before_what_was_committed(garden: Garden) -> list[Event] | None:
    commits = [event for event in garden.events if isinstance(event, Committed) and event.offset > 0]
    if not commits:
        return None
    last = commits[-1]
    now_ns = garden.events[-1].at_ns
    offset, value = garden.committed[last.partition].records[0]
    return [
        *garden.events,
        Resumed(now_ns + 2, now_ns + 1, f"{last.group}-new", last.group, last.partition, offset),
        Polled(now_ns + 2, f"{last.group}-new", last.group, last.partition, offset, value),
    ]


@finds(Rule.COMMIT_NEVER_MADE)
def find_a_commit_that_nobody_made(garden: Garden) -> list[Event] | None:
    seen = [event for event in garden.events if isinstance(event, CommittedSeen)]
    if not seen:
        return None
    event = garden.rng.choice(seen)
    return garden.replace(event, event._replace(offset=10**6 + garden.rng.randrange(100)))
