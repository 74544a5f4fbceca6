"""The transaction coordinator: Kafka's transactions as a state machine without a clock, a disk or a socket.

What decides changes nothing: it raises a TransactionError or returns records, and `results` has the rules for whoever
appends them. State changes in `replay` alone, which is fed the records of the log at start and, from then on, each
record as it is appended. Time is an argument, and `next_deadline_ms` says when to call `tick`. Until `finish_loading`
everything else raises CoordinatorLoadingError.
"""

from collections.abc import Collection

from logbrook.config.transactions import TransactionConfig
from logbrook.core.fields import STRING_BYTES_MAX
from logbrook.core.timers import Timers
from logbrook.core.transactions.ending import check_producer, end, end_with_bump
from logbrook.core.transactions.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadingError,
    InvalidProducerIdMappingError,
    InvalidTransactionalIdError,
    InvalidTransactionStateError,
    InvalidTransactionTimeoutError,
    TooManyTransactionalIdsError,
    TransactionalIdNotFoundError,
)
from logbrook.core.transactions.initializing import first_initialization, initialize
from logbrook.core.transactions.listing import describe, list_transactions
from logbrook.core.transactions.open_transactions import OpenTransactions
from logbrook.core.transactions.records import decode_key, decode_value, encode_key, encode_value
from logbrook.core.transactions.results import (
    Due,
    EndDecision,
    Ended,
    InitDecision,
    Initialized,
    InitRequest,
    Markers,
    Record,
    TransactionDescription,
    TransactionListing,
)
from logbrook.core.transactions.transaction import Transaction, TransactionState
from logbrook.model import TopicPartition

# How many ids a tick looks at, so that no tick is long.
_IDS_PER_TICK_MAX = 1_000
# What was due is due again after this, in case nothing came of it.
_RETRY_MS = 1_000


class TransactionCoordinator:
    """All transactional ids of this broker."""

    def __init__(self, config: TransactionConfig) -> None:
        self._config = config
        self._loading = True
        self._transactions: dict[str, Transaction] = {}
        # The ids of those in PREPARE_COMMIT or PREPARE_ABORT, in the order in which they got there.
        self._prepared: dict[str, None] = {}
        self._open = OpenTransactions()
        self._timers = Timers()
        # What was encoded last is replayed next, mostly, and need not be decoded.
        self._encoded: tuple[bytes, Transaction] | None = None

    # Requests

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether `init_producer` has to be given a fresh producer id, in case it uses it."""
        self._check_ready(transactional_id)
        return transactional_id not in self._transactions or self.is_exhausted(transactional_id)

    def is_exhausted(self, transactional_id: str) -> bool:
        """Whether `end` has to be given a fresh producer id, in case it uses it. No, where nobody knows the id."""
        self._check_ready(transactional_id)
        transaction = self._transactions.get(transactional_id)
        return transaction is not None and transaction.is_exhausted

    def init_producer(
        self, request: InitRequest, new_producer_id: int | None, now_ms: int, *, after_abort: bool = False
    ) -> InitDecision:
        """Make the client the producer of its transactional id. `after_abort` says that its own earlier decision
        without a result has been carried out and completed."""
        self._check_ready(request.transactional_id)
        if not 0 < request.timeout_ms <= self._config.timeout_ms_max:
            raise InvalidTransactionTimeoutError(
                request.transactional_id, request.timeout_ms, self._config.timeout_ms_max
            )
        before = self._transactions.get(request.transactional_id)
        if before is None:
            if len(self._transactions) >= self._config.ids_max:
                raise TooManyTransactionalIdsError(request.transactional_id, self._config.ids_max)
            assert new_producer_id is not None, "needs_producer_id said so"
            after = first_initialization(request, new_producer_id, now_ms)
        else:
            after = initialize(before, request, new_producer_id, now_ms, after_abort=after_abort)
        is_aborting = after.state is TransactionState.PREPARE_ABORT
        result = None if is_aborting else Initialized(after.producer_id, after.producer_epoch)
        return InitDecision([self._record(after)], result)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        now_ms: int,
    ) -> list[Record]:
        """Make these a part of the transaction, which begins with the first. No records if all are already."""
        transaction = self._unprepared(transactional_id, producer_id, producer_epoch)
        if transaction.partitions.issuperset(partitions):
            return []
        return [self._record(transaction.with_partitions(partitions, now_ms))]

    def check_partition(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition
    ) -> None:
        """Raises a TransactionError unless the producer may write to this partition now (KIP-890)."""
        transaction = self._unprepared(transactional_id, producer_id, producer_epoch)
        if partition not in transaction.partitions:
            asked = f"take writes to {partition}, which was not added to it"
            raise InvalidTransactionStateError(transactional_id, transaction.state, asked)

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        bumps_epoch: bool,
        next_producer_id: int | None,
        now_ms: int,
    ) -> EndDecision:
        """Decide the transaction. `bumps_epoch` for clients of the second version of the protocol."""
        before = self._of_producer(transactional_id, producer_id)
        after: Transaction | None
        if bumps_epoch:
            after = end_with_bump(before, producer_id, producer_epoch, next_producer_id, now_ms, is_commit=is_commit)
        else:
            after = end(before, producer_id, producer_epoch, now_ms, is_commit=is_commit)
        return EndDecision([] if after is None else [self._record(after)], Ended(*(after or before).successor))

    # What follows a decision

    def markers(self, transactional_id: str) -> Markers | None:
        """What its partitions are to be told; None unless the transaction is decided and not completed."""
        self._check_ready(transactional_id)
        transaction = self._transactions.get(transactional_id)
        if transaction is None or not transaction.state.is_prepared:
            return None
        return Markers(
            transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.is_commit,
            tuple(sorted(transaction.partitions)),
            transaction.decided_epoch,
        )

    def complete(self, transactional_id: str, now_ms: int) -> list[Record]:
        """All markers are written."""
        self._check_ready(transactional_id)
        return [self._record(self._transactions[transactional_id].completed(now_ms))]

    def unfinished(self) -> list[str]:
        """Those that are decided and not completed, whose markers are to be written, or to be written again."""
        self._check_loaded()
        return list(self._prepared)

    # Questions

    @property
    def is_loading(self) -> bool:
        return self._loading

    @property
    def open_count(self) -> int:
        """How many transactions have begun and are not completed."""
        return len(self._open)

    def is_open(self, producer_id: int, partition: TopicPartition) -> bool:
        """Whether a transaction of this producer that is not completed has this partition."""
        self._check_loaded()
        transaction = self._open.of(producer_id)
        return transaction is not None and partition in transaction.partitions

    def owner_of(self, producer_id: int, producer_epoch: int) -> str | None:
        """The transactional id whose producer this is, and which may still write. It looks at all of them."""
        self._check_loaded()
        for transactional_id, transaction in self._transactions.items():
            is_current = (transaction.producer_id, transaction.producer_epoch) == (producer_id, producer_epoch)
            if is_current and not transaction.state.is_prepared:
                return transactional_id
        return None

    def oldest_open_ms(self, now_ms: int) -> int | None:
        """The age of the oldest transaction that is not completed."""
        start_ms = self._open.oldest_start_ms()
        return None if start_ms is None else max(now_ms - start_ms, 0)

    def list_transactions(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        open_longer_than_ms: int = -1,
        pattern: str | None = None,
        *,
        now_ms: int,
    ) -> list[TransactionListing]:
        """Those to which all filters say yes; a filter that is empty, or -1, says yes to all. The pattern is for the
        whole transactional id. Raises InvalidPatternError."""
        self._check_loaded()
        return list_transactions(
            self._transactions.values(), states, producer_ids, open_longer_than_ms, pattern, now_ms
        )

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Raises TransactionalIdNotFoundError."""
        self._check_ready(transactional_id)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise TransactionalIdNotFoundError(transactional_id)
        return describe(transaction)

    # Time

    def next_deadline_ms(self) -> int | None:
        """When to call `tick`. Something may be due then; nothing is due before."""
        return None if self._loading else self._timers.next_ms()

    def tick(self, now_ms: int) -> Due:
        """What is due. It will be due again a little later if nothing comes of it."""
        due = Due([], [])
        if self._loading:
            return due
        for transactional_id in self._timers.take_due(now_ms, _IDS_PER_TICK_MAX):
            transaction = self._transactions[transactional_id]
            deadline_ms = self._deadline_ms(transaction)
            if deadline_ms is not None and deadline_ms <= now_ms:
                if transaction.state is TransactionState.ONGOING:
                    due.timed_out.append(transactional_id)
                else:
                    due.records.append((encode_key(transactional_id), None))
                deadline_ms = now_ms + _RETRY_MS
            self._timers.queue(transactional_id, deadline_ms)
        return due

    def expire(self, transactional_id: str, now_ms: int) -> list[Record]:
        """Abort a transaction that takes too long, and fence its producer. No records if it ended meanwhile."""
        self._check_ready(transactional_id)
        transaction = self._transactions.get(transactional_id)
        if transaction is None or transaction.state is not TransactionState.ONGOING:
            return []
        is_due = transaction.start_ms + transaction.timeout_ms <= now_ms
        return [self._record(transaction.fenced(now_ms))] if is_due else []

    # State

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Take in a record that is in the log. Kinds of records that are not ours are passed over.
        Raises CorruptTransactionRecordError, before anything has changed."""
        transactional_id = decode_key(key)
        if transactional_id is None:
            return
        before = self._transactions.get(transactional_id)
        after = None if value is None else self._decoded(transactional_id, value)
        self._open.update(before, after)
        if after is None:
            self._transactions.pop(transactional_id, None)
            self._timers.forget(transactional_id)
        else:
            self._transactions[transactional_id] = after
            if not self._loading:
                self._timers.queue(transactional_id, self._deadline_ms(after))
        if after is not None and after.state.is_prepared:
            self._prepared[transactional_id] = None
        else:
            self._prepared.pop(transactional_id, None)

    def finish_loading(self, now_ms: int) -> None:
        """The log has been replayed: open for requests. Transactions that are open go on, and time out as before."""
        assert self._loading
        self._loading = False
        for transactional_id, transaction in self._transactions.items():
            deadline_ms = self._deadline_ms(transaction)
            self._timers.queue(transactional_id, None if deadline_ms is None else max(deadline_ms, now_ms))

    def validate(self) -> None:
        """The rules that hold between any two calls, checked by tests."""
        opened = [each for each in self._transactions.values() if each.state.is_open]
        for transactional_id, transaction in self._transactions.items():
            assert transactional_id == transaction.transactional_id
            transaction.validate()
            deadline_ms, next_ms = self._deadline_ms(transaction), self.next_deadline_ms()
            assert self._loading or deadline_ms is None or next_ms is not None, "it could stay for ever"
        assert set(self._prepared) == {each.transactional_id for each in opened if each.state.is_prepared}
        assert self.open_count == len(opened)
        assert all(self._open.of(each.producer_id) == each for each in opened)
        assert self._open.oldest_start_ms() == min((each.start_ms for each in opened), default=None)

    # Helpers

    def _deadline_ms(self, transaction: Transaction) -> int | None:
        if transaction.state is TransactionState.ONGOING:
            return transaction.start_ms + transaction.timeout_ms
        if transaction.state.is_prepared:
            return None
        return transaction.last_update_ms + self._config.id_expiration_ms

    def _unprepared(self, transactional_id: str, producer_id: int, producer_epoch: int) -> Transaction:
        """The transaction that this producer may still change."""
        transaction = self._of_producer(transactional_id, producer_id)
        check_producer(transaction, producer_id, producer_epoch)
        if transaction.state.is_prepared:
            raise ConcurrentTransactionsError(transactional_id)
        return transaction

    def _of_producer(self, transactional_id: str, producer_id: int) -> Transaction:
        self._check_ready(transactional_id)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise InvalidProducerIdMappingError(transactional_id, producer_id)
        return transaction

    def _check_loaded(self) -> None:
        if self._loading:
            raise CoordinatorLoadingError

    def _check_ready(self, transactional_id: str) -> None:
        if not transactional_id or len(transactional_id.encode()) > STRING_BYTES_MAX:
            raise InvalidTransactionalIdError(transactional_id)
        self._check_loaded()

    def _decoded(self, transactional_id: str, value: bytes) -> Transaction:
        if self._encoded is not None and value is self._encoded[0]:
            return self._encoded[1]
        return decode_value(transactional_id, value)

    def _record(self, transaction: Transaction) -> Record:
        value = encode_value(transaction)
        self._encoded = value, transaction
        return encode_key(transaction.transactional_id), value
