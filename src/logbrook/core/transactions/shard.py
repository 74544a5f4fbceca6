"""The transaction coordinator of one partition of `__transaction_state`, as a state machine.

It has no clock, disk or socket. A decision changes nothing: it raises a TransactionError or returns records. State
changes in `replay` only (`core.coordinator` has the rules for the caller). After records that prepare a transaction
(`markers` is then not None) the caller writes the markers and calls `complete`. Time is an argument, and
`next_deadline_ms` is when to call `tick`.
"""

from collections.abc import Callable, Collection

from logbrook.config import TransactionConfig
from logbrook.core.coordinator import CoordinatorRecord, ProducerIdentity
from logbrook.core.timers import Timers
from logbrook.core.transactions.ending import check_producer, end_transaction
from logbrook.core.transactions.errors import (
    ConcurrentTransactionsError,
    InvalidPatternError,
    InvalidProducerIdMappingError,
    InvalidTransactionalIdError,
    InvalidTransactionStateError,
    InvalidTransactionTimeoutError,
    TooManyTransactionalIdsError,
    TransactionalIdNotFoundError,
)
from logbrook.core.transactions.initializing import first_initialization, initialize
from logbrook.core.transactions.messages import (
    EndDecision,
    InitDecision,
    InitRequest,
    TransactionMarkers,
    TransactionTimeouts,
)
from logbrook.core.transactions.records import decode_key, decode_value, encode_key, encode_value
from logbrook.core.transactions.transaction import Transaction, TransactionState
from logbrook.model import TopicPartition
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.records.fields import STRING_BYTES_MAX

# Maximum number of ids that a tick processes.
_IDS_PER_TICK_MAX = 1_000
# Delay after which a timeout is due again, in case it could not be processed.
_RETRY_MS = 1_000
_PATTERN_LENGTH_MAX = 1_000
_PATTERN_MEMORY_BYTES_MAX = 1 << 20


class TransactionCoordinatorShard:
    """The transactional ids of one shard.

    `count_ids` returns the number of ids of all shards, for the limit `ids_max`, and `count_bytes` the sum of their
    `state_bytes`, for the limit `state_bytes_max`.
    """

    def __init__(
        self,
        config: TransactionConfig,
        count_ids: Callable[[], int] | None = None,
        count_bytes: Callable[[], int] | None = None,
    ) -> None:
        self._config = config
        # Memory of all transactional ids, about.
        self.state_bytes = 0
        self._count_ids = count_ids or self.__len__
        self._count_bytes = count_bytes or (lambda: self.state_bytes)
        self._is_loading = True
        self._transactions: dict[str, Transaction] = {}
        # The ids in PREPARE_COMMIT or PREPARE_ABORT, in the order in which they were prepared.
        self._prepared: dict[str, None] = {}
        # Uncompleted transactions by producer id, and their ids by start time.
        self._open: dict[int, Transaction] = {}
        self._open_since = Timers()
        self._timers = Timers()
        self._grace_until_ms = 0
        # The last encoded value. It is usually the next one to be replayed, and need not be decoded.
        self._encoded: tuple[bytes, Transaction] | None = None

    def __len__(self) -> int:
        """The number of transactional ids."""
        return len(self._transactions)

    # Requests

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Return True if `init_producer` needs a new producer id."""
        check_transactional_id(transactional_id)
        return transactional_id not in self._transactions or self.is_exhausted(transactional_id)

    def is_exhausted(self, transactional_id: str) -> bool:
        """Return True if `end` needs a new producer id, because the epochs of the current one are used up."""
        check_transactional_id(transactional_id)
        transaction = self._transactions.get(transactional_id)
        return transaction is not None and transaction.is_exhausted

    def init_producer(
        self,
        request: InitRequest,
        new_producer_id: ProducerId | None,
        now_ms: int,
        aborted: ProducerIdentity | None = None,
    ) -> InitDecision:
        """Make the client the producer of its transactional id.

        `aborted` is that of an earlier decision for this request, which aborted an open transaction.
        """
        check_transactional_id(request.transactional_id)
        if not 0 < request.timeout_ms <= self._config.timeout_ms_max:
            raise InvalidTransactionTimeoutError(
                request.transactional_id, request.timeout_ms, self._config.timeout_ms_max
            )
        before = self._transactions.get(request.transactional_id)
        if before is None:
            if self._count_ids() >= self._config.ids_max:
                raise TooManyTransactionalIdsError(request.transactional_id, "ids_max", self._config.ids_max)
            assert new_producer_id is not None, "needs_producer_id returned True"
            after = first_initialization(request, new_producer_id, now_ms)
            self._check_growth(None, after)
        else:
            after = initialize(before, request, new_producer_id, now_ms, aborted)
        producer = ProducerIdentity(after.producer_id, after.producer_epoch)
        if after.state is TransactionState.PREPARE_ABORT:
            return InitDecision([self._record(after)], None, aborted=producer)
        return InitDecision([self._record(after)], producer)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Collection[TopicPartition],
        now_ms: int,
    ) -> list[CoordinatorRecord]:
        """Add partitions to the transaction, which begins with the first. No records if all are part of it."""
        transaction = self._unprepared(transactional_id, producer_id, producer_epoch)
        if transaction.partitions.issuperset(partitions):
            return []
        after = transaction.with_partitions(partitions, now_ms)
        self._check_growth(transaction, after)
        return [self._record(after)]

    def check_partition(
        self, transactional_id: str, producer_id: ProducerId, producer_epoch: ProducerEpoch, partition: TopicPartition
    ) -> None:
        """Raises a TransactionError unless the partition is part of the producer's open transaction (KIP-890)."""
        transaction = self._unprepared(transactional_id, producer_id, producer_epoch)
        if partition not in transaction.partitions:
            asked = f"accept writes to {partition}, which was not added to it"
            raise InvalidTransactionStateError(transactional_id, transaction.state, asked)

    def end(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        *,
        is_commit: bool,
        bumps_epoch: bool,
        next_producer_id: ProducerId | None,
        now_ms: int,
    ) -> EndDecision:
        """Commit or abort the transaction. `bumps_epoch`: the client uses transaction version 2 (KIP-890)."""
        before = self._of_producer(transactional_id, producer_id)
        after = end_transaction(
            before,
            ProducerIdentity(producer_id, producer_epoch),
            next_producer_id,
            now_ms,
            is_commit=is_commit,
            bumps_epoch=bumps_epoch,
        )
        successor = ProducerIdentity(*(after or before).successor)
        return EndDecision([] if after is None else [self._record(after)], successor)

    # Completion of prepared transactions

    def markers(self, transactional_id: str) -> TransactionMarkers | None:
        """Return the markers to write; None unless the transaction is prepared."""
        check_transactional_id(transactional_id)
        transaction = self._transactions.get(transactional_id)
        if transaction is None or not transaction.state.is_prepared:
            return None
        return TransactionMarkers(
            transactional_id,
            ProducerIdentity(transaction.producer_id, transaction.producer_epoch),
            transaction.is_commit,
            tuple(sorted(transaction.partitions)),
            transaction.decided_epoch,
        )

    def complete(self, transactional_id: str, now_ms: int) -> list[CoordinatorRecord]:
        """Return the CompleteCommit or CompleteAbort record: all markers are committed."""
        return [self._record(self._transactions[transactional_id].completed(now_ms))]

    def prepared_ids(self) -> list[str]:
        """Return the ids in PrepareCommit or PrepareAbort, whose markers have to be written (again)."""
        return list(self._prepared)

    # Queries

    @property
    def open_count(self) -> int:
        """The number of transactions that have begun and are not completed."""
        return len(self._open)

    def is_open(self, producer_id: ProducerId, partition: TopicPartition) -> bool:
        """Return True if the partition is part of an uncompleted transaction of the producer."""
        transaction = self._open.get(producer_id)
        return transaction is not None and partition in transaction.partitions

    def owner_of(self, producer: ProducerIdentity) -> str | None:
        """Return the transactional id whose current producer this is and that may still write. Linear search."""
        for transactional_id, transaction in self._transactions.items():
            if transaction.belongs_to(*producer) and not transaction.state.is_prepared:
                return transactional_id
        return None

    def oldest_open_ms(self, now_ms: int) -> int | None:
        """Return the age of the oldest uncompleted transaction."""
        start_ms = self._open_since.next_ms()
        return None if start_ms is None else max(now_ms - start_ms, 0)

    def list_transactions(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        open_longer_than_ms: int = -1,
        pattern: str | None = None,
        *,
        now_ms: int,
    ) -> list[Transaction]:
        """Return the transactional ids that pass all filters (KIP-664, KIP-994, KIP-1152).

        An empty filter, or -1, passes all. The pattern has to match the whole id. Raises InvalidPatternError.
        """
        conditions: list[Callable[[Transaction], bool]] = []
        if states:
            conditions.append(lambda transaction: transaction.state in states)
        if producer_ids:
            conditions.append(lambda transaction: transaction.producer_id in producer_ids)
        if open_longer_than_ms >= 0:
            conditions.append(
                lambda transaction: transaction.state.is_open and now_ms - transaction.start_ms > open_longer_than_ms
            )
        if pattern:
            matches = transactional_id_matcher(pattern)
            conditions.append(lambda transaction: matches(transaction.transactional_id))
        return [
            transaction
            for transaction in self._transactions.values()
            if all(condition(transaction) for condition in conditions)
        ]

    def describe(self, transactional_id: str) -> Transaction:
        """Raises TransactionalIdNotFoundError."""
        check_transactional_id(transactional_id)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise TransactionalIdNotFoundError(transactional_id)
        return transaction

    # Timers

    def begin_grace(self, until_ms: int) -> None:
        """Let no open transaction time out before `until_ms`."""
        self._grace_until_ms = until_ms
        for transaction in self._open.values():
            self._timers.queue(transaction.transactional_id, self._deadline_ms(transaction))

    def next_deadline_ms(self) -> int | None:
        """Return the earliest time at which `tick` may have work."""
        return None if self._is_loading else self._timers.next_ms()

    def tick(self, now_ms: int) -> TransactionTimeouts:
        """Return the timeouts that are due. They are due again after a while if they were not processed."""
        timeouts = TransactionTimeouts([], [])
        for transactional_id in self._timers.take_due(now_ms, _IDS_PER_TICK_MAX):
            transaction = self._transactions[transactional_id]
            deadline_ms = self._deadline_ms(transaction)
            if deadline_ms is not None and deadline_ms <= now_ms:
                is_ongoing = transaction.state is TransactionState.ONGOING
                (timeouts.timed_out if is_ongoing else timeouts.expired_ids).append(transactional_id)
                deadline_ms = now_ms + _RETRY_MS
            self._timers.queue(transactional_id, deadline_ms)
        return timeouts

    def abort_timed_out(self, transactional_id: str, now_ms: int) -> list[CoordinatorRecord]:
        """Abort a transaction that timed out, and fence its producer. No records if it has ended meanwhile."""
        transaction = self._transactions.get(transactional_id)
        if transaction is None or transaction.state is not TransactionState.ONGOING:
            return []
        deadline_ms = self._deadline_ms(transaction)
        is_due = deadline_ms is not None and deadline_ms <= now_ms
        return [self._record(transaction.fenced(now_ms))] if is_due else []

    def remove_expired(self, transactional_id: str) -> list[CoordinatorRecord]:
        """Return the tombstone of an id that expired."""
        return [(encode_key(transactional_id), None)]

    # Replay

    def replay(self, key: bytes, value: bytes | None, producer: ProducerIdentity | None = None) -> None:
        """Apply an appended record. Raises CorruptCoordinatorRecordError, before any change."""
        assert producer is None, "__transaction_state has no transactional records"
        transactional_id = decode_key(key)
        if transactional_id is None:
            return
        before = self._transactions.get(transactional_id)
        after = None if value is None else self._decoded(transactional_id, value)
        self._update_open(transactional_id, before, after)
        self.state_bytes += (0 if after is None else after.size) - (0 if before is None else before.size)
        if after is None:
            self._transactions.pop(transactional_id, None)
            self._timers.forget(transactional_id)
        else:
            self._transactions[transactional_id] = after
            if not self._is_loading:
                self._timers.queue(transactional_id, self._deadline_ms(after))
        if after is not None and after.state.is_prepared:
            self._prepared[transactional_id] = None
        else:
            self._prepared.pop(transactional_id, None)

    def replay_marker(self, producer: ProducerIdentity, *, is_commit: bool) -> None:
        """Ignore it: `__transaction_state` is not part of any transaction."""

    def finish_loading(self, now_ms: int) -> None:
        """Open the shard for requests. Open transactions continue, and time out as before."""
        assert self._is_loading
        self._is_loading = False
        for transactional_id, transaction in self._transactions.items():
            deadline_ms = self._deadline_ms(transaction)
            self._timers.queue(transactional_id, None if deadline_ms is None else max(deadline_ms, now_ms))

    def validate(self) -> None:
        """Assert the invariants that hold between any two calls. For tests."""
        opened = [transaction for transaction in self._transactions.values() if transaction.state.is_open]
        for transactional_id, transaction in self._transactions.items():
            assert transactional_id == transaction.transactional_id
            transaction.validate()
            deadline_ms, next_ms = self._deadline_ms(transaction), self.next_deadline_ms()
            assert self._is_loading or deadline_ms is None or next_ms is not None, "the id could stay for ever"
        prepared = {transaction.transactional_id for transaction in opened if transaction.state.is_prepared}
        assert set(self._prepared) == prepared
        assert self.open_count == len(opened)
        assert self.state_bytes == sum(transaction.size for transaction in self._transactions.values())
        assert all(self._open[transaction.producer_id] == transaction for transaction in opened)
        assert self._open_since.next_ms() == min((transaction.start_ms for transaction in opened), default=None)

    def _check_growth(self, before: Transaction | None, after: Transaction) -> None:
        """Raises TooManyTransactionalIdsError if there is no memory for the change."""
        more_bytes = after.size - (0 if before is None else before.size)
        bytes_max = self._config.state_bytes_max
        if more_bytes > bytes_max - self._count_bytes():
            raise TooManyTransactionalIdsError(after.transactional_id, "state_bytes_max", bytes_max)

    def _update_open(self, transactional_id: str, before: Transaction | None, after: Transaction | None) -> None:
        """Index the uncompleted transaction of an id; `before` and `after` are None for an id that does not exist."""
        if before is not None and before.state.is_open:
            self._open.pop(before.producer_id, None)
        if after is None or before is None or before.start_ms != after.start_ms or not after.state.is_open:
            self._open_since.forget(transactional_id)
        if after is not None and after.state.is_open:
            self._open[after.producer_id] = after
            self._open_since.queue(transactional_id, after.start_ms)

    def _deadline_ms(self, transaction: Transaction) -> int | None:
        if transaction.state is TransactionState.ONGOING:
            return max(transaction.start_ms + transaction.timeout_ms, self._grace_until_ms)
        if transaction.state.is_prepared:
            return None
        return transaction.last_update_ms + self._config.id_expiration_ms

    def _unprepared(self, transactional_id: str, producer_id: ProducerId, producer_epoch: ProducerEpoch) -> Transaction:
        """Return the transaction, if this producer may still change it. Raises TransactionError otherwise."""
        transaction = self._of_producer(transactional_id, producer_id)
        check_producer(transaction, producer_id, producer_epoch)
        if transaction.state.is_prepared:
            raise ConcurrentTransactionsError(transactional_id)
        return transaction

    def _of_producer(self, transactional_id: str, producer_id: ProducerId) -> Transaction:
        check_transactional_id(transactional_id)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise InvalidProducerIdMappingError(transactional_id, producer_id)
        return transaction

    def _decoded(self, transactional_id: str, value: bytes) -> Transaction:
        if self._encoded is not None and value is self._encoded[0]:
            return self._encoded[1]
        return decode_value(transactional_id, value)

    def _record(self, transaction: Transaction) -> CoordinatorRecord:
        value = encode_value(transaction)
        self._encoded = value, transaction
        return encode_key(transaction.transactional_id), value


def check_transactional_id(transactional_id: str) -> None:
    """Raises InvalidTransactionalIdError."""
    if not transactional_id or len(transactional_id.encode()) > STRING_BYTES_MAX:
        raise InvalidTransactionalIdError(transactional_id)


def transactional_id_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches whole ids against a regular expression of RE2, as in Kafka (KIP-1152).

    Matching takes time linear in the id's length, whatever the pattern: it comes from clients, and runs on the event
    loop. Raises InvalidPatternError.
    """
    # Imported here because few brokers ever get a pattern, and the start should not pay for it.
    import re2  # noqa: PLC0415

    if len(pattern) > _PATTERN_LENGTH_MAX:
        raise InvalidPatternError(pattern[:100], f"is longer than {_PATTERN_LENGTH_MAX} characters")
    options = re2.Options()
    options.max_mem = _PATTERN_MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        raise InvalidPatternError(pattern, reason.decode() if isinstance(reason, bytes) else str(reason)) from None
    return lambda transactional_id: compiled.fullmatch(transactional_id) is not None
