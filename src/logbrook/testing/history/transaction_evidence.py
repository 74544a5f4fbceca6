"""The transactions of a history: what was sent in each, and how each ended as far as its producer knows."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeVar, cast

from logbrook.model import TopicPartition
from logbrook.testing.history.events import (
    Event,
    Sent,
    TransactionAborted,
    TransactionalIdTaken,
    TransactionBegun,
    TransactionCommitted,
    TransactionFailed,
    TransactionUnknown,
)

_E = TypeVar("_E")


class End(Enum):
    COMMITTED = auto()
    UNKNOWN = auto()
    """The commit was not answered."""
    ABORTED = auto()
    """Or its commit was refused."""
    NONE = auto()
    """Nobody asked for one."""


_ENDS = {TransactionCommitted: End.COMMITTED, TransactionUnknown: End.UNKNOWN, TransactionFailed: End.ABORTED}


@dataclass
class Transaction:
    name: str
    producer: str
    values: dict[str, TopicPartition] = field(default_factory=dict)
    end: End = End.NONE
    commit_asked_at_ns: int | None = None
    fenced_by: str | None = None
    """The producer that had taken the transactional id before the commit was asked for."""


class TransactionEvents:
    """`events` by kind, those of a kind in order of their times."""

    def __init__(self, events: Mapping[type, list[Event]]) -> None:
        self._events = events
        self.transactions: dict[str, Transaction] = {}
        self._begun: dict[str, list[tuple[int, Transaction]]] = defaultdict(list)
        for begun in self._of(TransactionBegun):
            transaction = self.transactions[begun.transaction] = Transaction(begun.transaction, begun.producer)
            self._begun[begun.producer].append((begun.at_ns, transaction))
        asked: list[TransactionCommitted | TransactionUnknown | TransactionFailed]
        asked = [*self._of(TransactionCommitted), *self._of(TransactionUnknown), *self._of(TransactionFailed)]
        for event in asked:
            ended = self.transactions[event.transaction]
            ended.end, ended.commit_asked_at_ns = _ENDS[type(event)], event.begun_at_ns
        # A commit that came to nothing may have been asked for before, so this has the last word.
        for aborted in self._of(TransactionAborted):
            self.transactions[aborted.transaction].end = End.ABORTED
        self._fence()

    def of_sent(self, sent: Sent) -> Transaction | None:
        """The one that the producer had begun last before it sent the value."""
        begun = self._begun.get(sent.producer)
        if begun is None:
            return None
        number = bisect_right(begun, sent.at_ns, key=_first)
        return begun[number - 1][1] if number else None

    def _fence(self) -> None:
        """A transaction is fenced by whoever took its producer's id between the producer itself and the commit."""
        taken: dict[str, list[TransactionalIdTaken]] = defaultdict(list)
        place: dict[str, tuple[str, int]] = {}
        for event in self._of(TransactionalIdTaken):
            place[event.producer] = (event.transactional_id, len(taken[event.transactional_id]))
            taken[event.transactional_id].append(event)
        for transaction in self.transactions.values():
            if transaction.producer in place and transaction.commit_asked_at_ns is not None:
                transactional_id, number = place[transaction.producer]
                followers = taken[transactional_id][number + 1 :][:1]
                if followers and followers[0].at_ns < transaction.commit_asked_at_ns:
                    transaction.fenced_by = followers[0].producer

    def _of(self, kind: type[_E]) -> list[_E]:
        return cast(list[_E], self._events.get(kind, []))


def _first(begun: tuple[int, Transaction]) -> int:
    return begun[0]
