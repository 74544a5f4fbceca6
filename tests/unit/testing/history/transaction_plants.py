"""Bugs of transactions to plant in a valid history, each with the anomalies that must be found."""

from collections import defaultdict

from logbrook.testing.history import Event
from logbrook.testing.history.anomalies import Rule
from logbrook.testing.history.events import (
    Polled,
    Sent,
    TransactionAborted,
    TransactionCommitted,
    TransactionFailed,
    TransactionUnknown,
)
from tests.unit.testing.history.plants import PLANTS, Garden, finds


def polled_at_the_end(garden: Garden, place: tuple[object, ...] | None) -> list[Event] | None:
    if place is None:
        return None
    partition, offset, value, _ = place
    at_ns = garden.events[-1].at_ns + 1
    return [*garden.events, Polled(at_ns, "late reader", "", partition, offset, value)]  # type: ignore[arg-type]


@finds(Rule.ABORTED_READ)
def give_a_consumer_what_was_aborted(garden: Garden) -> list[Event] | None:
    places = garden.of_transactions(TransactionAborted)
    return polled_at_the_end(garden, garden.rng.choice(places) if places else None)


@finds(Rule.ABORTED_READ)
def give_a_consumer_what_was_refused(garden: Garden) -> list[Event] | None:
    places = garden.of_transactions(TransactionFailed)
    return polled_at_the_end(garden, garden.rng.choice(places) if places else None)


@finds(Rule.ABORTED_READ)
def show_an_aborted_record_at_the_end(garden: Garden) -> list[Event] | None:
    places = garden.of_transactions(TransactionAborted)
    if not places:
        return None
    partition, _, value, _ = garden.rng.choice(places)
    return garden.with_visible(partition, {value}, set())


@finds(Rule.UNCOMMITTED_READ)
def show_what_nobody_asked_to_commit(garden: Garden) -> list[Event] | None:
    places = garden.of_transactions(None)
    if not places:
        return None
    partition, _, value, _ = garden.rng.choice(places)
    return garden.with_visible(partition, {value}, set())


@finds(Rule.UNCOMMITTED_READ)
def give_a_consumer_a_record_before_its_commit(garden: Garden) -> list[Event] | None:
    places = garden.of_transactions(TransactionCommitted)
    if not places:
        return None
    partition, offset, value, transaction = garden.rng.choice(places)
    asked_at_ns = next(
        event.begun_at_ns
        for event in garden.events
        if isinstance(event, TransactionCommitted) and event.transaction == transaction
    )
    return [*garden.events, Polled(asked_at_ns - 1, "early reader", "", partition, offset, value)]


def unknown(garden: Garden, reason: str) -> dict[str, list[Sent]]:
    """Return the logged records of transactions whose commit was not answered."""
    there = {value for final in garden.finals.values() for _, value in final.records}
    return {
        event.transaction: [sent for sent in garden.transactions[event.transaction] if sent.value in there]
        for event in garden.events
        if isinstance(event, TransactionUnknown) and event.reason == reason
    }


@finds(Rule.FENCED_READ)
def show_what_a_fenced_producer_committed(garden: Garden) -> list[Event] | None:
    fenced = [sent for values in unknown(garden, "fenced").values() for sent in values]
    if not fenced:
        return None
    sent = garden.rng.choice(fenced)
    return garden.with_visible(sent.partition, {sent.value}, set())


@finds(Rule.LOST_COMMIT)
def hide_a_committed_transaction(garden: Garden) -> list[Event] | None:
    """Choose a transaction with a single partition: a plant changes one event."""
    by_name: dict[str, set[object]] = defaultdict(set)
    for partition, _, _, transaction in garden.of_transactions(TransactionCommitted):
        by_name[transaction].add(partition)
    names = [name for name, partitions in by_name.items() if len(partitions) == 1]
    if not names:
        return None
    sent = garden.transactions[garden.rng.choice(names)]
    return garden.with_visible(sent[0].partition, set(), {record.value for record in sent})


@finds(Rule.TORN_TRANSACTION)
def hide_a_part_of_a_committed_transaction(garden: Garden) -> list[Event] | None:
    places = garden.of_transactions(TransactionCommitted)
    places = [place for place in places if len(garden.transactions[place[3]]) > 1]
    if not places:
        return None
    partition, _, value, _ = garden.rng.choice(places)
    return garden.with_visible(partition, set(), {value})


@finds(Rule.TORN_TRANSACTION)
def show_a_part_of_a_transaction_without_an_answer(garden: Garden) -> list[Event] | None:
    parts = [sent for sent in unknown(garden, "unknown, aborted").values() if len(sent) > 1]
    if not parts:
        return None
    sent = garden.rng.choice(garden.rng.choice(parts))
    return garden.with_visible(sent.partition, {sent.value}, set())


@finds(Rule.COMMITTED_RECORD_HIDDEN)
def hide_what_is_of_no_transaction(garden: Garden) -> list[Event] | None:
    at = garden.pick(garden.records(acknowledged=True, polled=garden.rng.random() < 0.5))
    if at is None:
        return None
    partition, offset = at
    return garden.with_visible(partition, set(), {dict(garden.finals[partition].records)[offset]})


@finds(Rule.HANGING_TRANSACTION)
def leave_a_transaction_open(garden: Garden) -> list[Event] | None:
    ends = [
        final
        for final in garden.committed.values()
        if final.records and final.records[-1][0] + 1 < final.last_stable_offset
    ]
    if not ends:
        return None
    committed = garden.rng.choice(ends)
    last, _ = committed.records[-1]
    return garden.replace(committed, committed._replace(last_stable_offset=last + 1))


@finds(Rule.NO_FINAL_READ)
def forget_to_read_what_is_committed(garden: Garden) -> list[Event] | None:
    sent = [event for values in garden.transactions.values() for event in values]
    if not sent:
        return None
    partition = garden.rng.choice(sent).partition
    return garden.without(garden.committed[partition])


@finds(Rule.DUPLICATE)
def write_a_committed_value_again(garden: Garden) -> list[Event] | None:
    places = garden.of_transactions(TransactionCommitted)
    if not places:
        return None
    partition, _, value, _ = garden.rng.choice(places)
    final = garden.finals[partition]
    return garden.with_final(partition, [*final.records, (final.log_end_offset, value)], final.log_end_offset + 1)


@finds(Rule.REORDERED)
def swap_what_was_sent_in_a_transaction(garden: Garden) -> list[Event] | None:
    there = {value for final in garden.finals.values() for _, value in final.records}
    for name in garden.rng.sample(list(garden.transactions), len(garden.transactions)):
        sent = [event for event in garden.transactions[name] if event.value in there]
        first = sent[0] if sent else None
        second = next((event for event in sent[1:] if first is not None and event.partition == first.partition), None)
        if first is not None and second is not None:
            renamed = {id(first): first._replace(value=second.value), id(second): second._replace(value=first.value)}
            return [renamed.get(id(event), event) for event in garden.events]
    return None


EVERY_PLANT = dict(PLANTS)
"""All plants, those of transactions included."""
