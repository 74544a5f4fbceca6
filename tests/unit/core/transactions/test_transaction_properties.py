"""Invariants of the transaction coordinator under random requests, times, losses and restarts.

- `validate()` after each step.
- The log alone gives a fresh coordinator the same state, and so does its newest record of each id, which is what
  compaction leaves.
- The epochs returned for a transactional id never decrease, and each is returned to one client only.
- Each transaction is decided once, by the client that began it, or aborted.
- A delayed request of a client that bumps its epochs never decides a later transaction of its own.

TransactionMarkers are written late; some requests are sent again later.
"""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from logbrook.config import TransactionConfig
from logbrook.core.coordinator import CoordinatorRecord
from logbrook.core.transactions.errors import TransactionError
from logbrook.core.transactions.messages import InitRequest
from logbrook.core.transactions.records import encode_key, encode_value
from logbrook.core.transactions.shard import TransactionCoordinatorShard
from logbrook.core.transactions.transaction import Transaction
from logbrook.model import TopicPartition
from logbrook.model.identifiers import ProducerEpoch, ProducerId

CONFIG = TransactionConfig(timeout_ms_max=60_000, id_expiration_ms=200_000, ids_max=3)
IDS = st.sampled_from(["a", "b", "c", "d"])
CLIENTS = st.integers(0, 5)
PARTITIONS = st.lists(st.builds(TopicPartition, st.sampled_from(["t", "u"]), st.integers(0, 2)), max_size=3)


@dataclass(slots=True)
class Client:
    """A client with the state from its last responses. Clients 0 to 2 use the second version of the protocol."""

    number: int
    transactional_id: str = ""
    producer_id: int = -1
    producer_epoch: int = -1
    # The number of ended transactions, and the EndTxn requests sent: their content, and the transaction they end.
    ended: int = 0
    sent: list[tuple[str, int, int, bool, int]] = field(default_factory=list)

    @property
    def bumps_epoch(self) -> bool:
        return self.number < 3

    def take(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id, self.producer_epoch = producer_id, producer_epoch


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = TransactionCoordinatorShard(CONFIG)
        self.coordinator.finish_loading(0)
        self.now_ms = 0
        self.clients = [Client(number) for number in range(6)]
        self.log: list[CoordinatorRecord] = []
        self.last_producer_id = 0
        # The client that got each producer id and epoch.
        self.owners: dict[tuple[int, int], int] = {}

    # Actions of clients

    @rule(number=CLIENTS, transactional_id=IDS, goes_on=st.booleans(), timeout_ms=st.sampled_from([1, 30_000, 60_000]))
    def init(self, number: int, transactional_id: str, goes_on: bool, timeout_ms: int) -> None:
        client = self.clients[number]
        goes_on = goes_on and client.transactional_id == transactional_id
        known = (client.producer_id, client.producer_epoch) if goes_on else (-1, -1)
        producer_id, producer_epoch = ProducerId(known[0]), ProducerEpoch(known[1])
        request = InitRequest(transactional_id, timeout_ms, producer_id, producer_epoch)
        try:
            decision = self.coordinator.init_producer(request, self.fresh_id(transactional_id), self.now_ms)
            self.append(decision.records)
            if decision.result is None:
                self.finish(transactional_id)
                fresh_id = self.fresh_id(transactional_id)
                decision = self.coordinator.init_producer(request, fresh_id, self.now_ms, decision.aborted)
                self.append(decision.records)
        except TransactionError:
            return
        assert decision.result is not None
        client.transactional_id = transactional_id
        self.tell(client, decision.result.producer_id, decision.result.producer_epoch)

    @rule(number=CLIENTS, partitions=PARTITIONS)
    def add(self, number: int, partitions: list[TopicPartition]) -> None:
        client = self.clients[number]
        try:
            records = self.coordinator.add_partitions(
                client.transactional_id,
                ProducerId(client.producer_id),
                ProducerEpoch(client.producer_epoch),
                partitions,
                self.now_ms,
            )
        except TransactionError:
            return
        self.append(records)
        for partition in partitions:
            self.coordinator.check_partition(
                client.transactional_id, ProducerId(client.producer_id), ProducerEpoch(client.producer_epoch), partition
            )
            assert self.coordinator.is_open(ProducerId(client.producer_id), partition)

    @rule(number=CLIENTS, is_commit=st.booleans(), finish=st.booleans(), hears=st.booleans())
    def end(self, number: int, is_commit: bool, finish: bool, hears: bool) -> None:
        """End the transaction. The response may be lost; the client then retries."""
        client = self.clients[number]
        sent = (client.transactional_id, client.producer_id, client.producer_epoch, is_commit, client.ended)
        client.sent.append(sent)
        self.send_end(client, sent, finish, hears)

    @precondition(lambda self: any(client.sent for client in self.clients))
    @rule(number=CLIENTS, pick=st.integers(0, 100), finish=st.booleans())
    def a_delayed_end_arrives(self, number: int, pick: int, finish: bool) -> None:
        client = self.clients[number]
        if client.sent:
            self.send_end(client, client.sent[pick % len(client.sent)], finish, hears=False)

    def send_end(self, client: Client, sent: tuple[str, int, int, bool, int], finish: bool, hears: bool) -> None:
        transactional_id, producer_id, producer_epoch, is_commit, meant = sent
        before = self.state(self.coordinator).get(transactional_id)
        try:
            decision = self.coordinator.end(
                transactional_id,
                ProducerId(producer_id),
                ProducerEpoch(producer_epoch),
                is_commit=is_commit,
                bumps_epoch=client.bumps_epoch,
                next_producer_id=self.fresh_id(transactional_id),
                now_ms=self.now_ms,
            )
        except TransactionError:
            return
        self.append(decision.records)
        if decision.records:
            assert before is not None
            assert (before.producer_id, before.producer_epoch) == (producer_id, producer_epoch)
            markers = self.coordinator.markers(transactional_id)
            assert markers is not None
            assert (markers.producer.producer_id, markers.is_commit) == (producer_id, is_commit)
            assert markers.partitions == tuple(sorted(before.partitions))
            if client.bumps_epoch:
                assert markers.producer.producer_epoch == producer_epoch + 1
                assert meant == client.ended, "a delayed end decided a later transaction"
            client.ended += 1
            if finish:
                self.finish(transactional_id)
        if hears:
            self.tell(client, decision.result.producer_id, decision.result.producer_epoch)

    # Actions of the environment

    @rule(pick=st.integers(0, 10))
    def finish_one(self, pick: int) -> None:
        unfinished = self.coordinator.prepared_ids()
        if unfinished:
            self.finish(unfinished[pick % len(unfinished)])

    @rule(by_ms=st.sampled_from([0, 1, 1_000, 29_999, 60_000, 200_000]), carry_out=st.booleans())
    def advance(self, by_ms: int, carry_out: bool) -> None:
        """Let time pass with a tick at each deadline; some ticks are lost."""
        until_ms = self.now_ms + by_ms
        ticks = 0
        while (deadline_ms := self.coordinator.next_deadline_ms()) is not None and deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            due = self.coordinator.tick(self.now_ms)
            if carry_out:
                for transactional_id in due.timed_out:
                    self.append(self.coordinator.abort_timed_out(transactional_id, self.now_ms))
                for transactional_id in due.expired_ids:
                    self.append(self.coordinator.remove_expired(transactional_id))
            ticks += 1
            assert ticks < 2_000, "it spins"
        self.now_ms = until_ms

    @rule()
    def restart(self) -> None:
        self.coordinator = self.replayed(self.log)

    @rule()
    def compact(self) -> None:
        """Keep the newest record of each key, in order."""
        self.log = [(key, value) for key, value in compacted(self.log) if value is not None]

    @rule(transactional_id=IDS)
    def use_up_the_epochs(self, transactional_id: str) -> None:
        """Skip epochs, as if many transactions had ended in between."""
        transaction = self.state(self.coordinator).get(transactional_id)
        client = next((candidate for candidate in self.clients if self.is_current(candidate, transaction)), None)
        if transaction is None or client is None or transaction.producer_epoch > 32_000 or transaction.state.is_open:
            return
        later = replace(transaction, producer_epoch=ProducerEpoch(32_762), last_producer_epoch=ProducerEpoch(-1))
        self.append([(encode_key(transactional_id), encode_value(later))])
        self.tell(client, later.producer_id, later.producer_epoch)

    # Invariants

    @invariant()
    def rules_hold(self) -> None:
        self.coordinator.validate()

    @invariant()
    def the_log_tells_it_all(self) -> None:
        for log in (self.log, compacted(self.log)):
            fresh = self.replayed(log)
            fresh.validate()
            assert self.state(fresh) == self.state(self.coordinator)
            assert sorted(fresh.prepared_ids()) == sorted(self.coordinator.prepared_ids())
            assert fresh.oldest_open_ms(self.now_ms) == self.coordinator.oldest_open_ms(self.now_ms)

    @invariant()
    def what_can_time_out_has_a_deadline(self) -> None:
        can = [
            transaction for transaction in self.state(self.coordinator).values() if not transaction.state.is_prepared
        ]
        assert not can or self.coordinator.next_deadline_ms() is not None

    def tell(self, client: Client, producer_id: int, producer_epoch: int) -> None:
        assert producer_epoch < 32_767, "that one is for fencing"
        whose = self.owners.setdefault((producer_id, producer_epoch), client.number)
        assert whose == client.number, "two clients are the same producer"
        client.take(producer_id, producer_epoch)

    def is_current(self, client: Client, transaction: Transaction | None) -> bool:
        return transaction is not None and transaction.belongs_to(
            ProducerId(client.producer_id), ProducerEpoch(client.producer_epoch)
        )

    def append(self, records: list[CoordinatorRecord]) -> None:
        self.log += records
        for key, value in records:
            self.coordinator.replay(key, value)

    def finish(self, transactional_id: str) -> None:
        self.append(self.coordinator.complete(transactional_id, self.now_ms))

    def fresh_id(self, transactional_id: str) -> ProducerId | None:
        if transactional_id and not self.coordinator.needs_producer_id(transactional_id):
            return None
        self.last_producer_id += 1
        return ProducerId(self.last_producer_id)

    def replayed(self, log: list[CoordinatorRecord]) -> TransactionCoordinatorShard:
        fresh = TransactionCoordinatorShard(CONFIG)
        for key, value in log:
            fresh.replay(key, value)
        fresh.finish_loading(self.now_ms)
        return fresh

    def state(self, coordinator: TransactionCoordinatorShard) -> dict[str, Transaction]:
        return coordinator._transactions


def compacted(log: list[CoordinatorRecord]) -> list[CoordinatorRecord]:
    newest = {key: at for at, (key, _) in enumerate(log)}
    return [log[at] for at in sorted(newest.values())]


@pytest.mark.long
def test_many_operations_on_transactions() -> None:
    run_state_machine_as_test(Transactions, settings=settings(max_examples=400, stateful_step_count=50))


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=40, stateful_step_count=40)
