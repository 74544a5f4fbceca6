"""A producer of transactions (KIP-98): all its batches and offsets become visible together, or none does.

Whoever asks for a transactional id last has it. What its predecessors have open is aborted, and what they do from then
on is refused: `ProducerFencedError`.

There are two versions of the protocol. In the first a producer says before it writes to a partition, or commits offsets
of a group, that this belongs to its transaction, and it goes on with its epoch and sequences after the end of one. In
the second (KIP-890) the brokers see what belongs to it, and each end gives the producer a new epoch, so that nothing
that comes late can belong to a later transaction. A cluster says by its feature `transaction.version` whether it speaks
the second. Clusters that do expect the first from those who send requests of versions that are older.

An end whose answer is lost is asked for again, because a broker that has heard of it gives the same answer. When no
answer comes in time, nobody knows how the transaction ended; a new producer with the same id finds out by reading what
was committed.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic
from types import TracebackType

from logbrook.client.client import Client
from logbrook.client.connection import Connection
from logbrook.client.coordinators import CommittedOffset, CoordinatorKind, Coordinators, check
from logbrook.client.errors import BrokerError, ProducerFencedError, TransactionTimedOutError
from logbrook.client.producer import DELIVERY_TIMEOUT_S, IN_FLIGHT_BYTES_MAX, REQUEST_BYTES_MAX, Producer
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.version import VERSION
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from logbrook.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from logbrook.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from logbrook.protocol.messages.produce import ProduceRequest
from logbrook.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from logbrook.protocol.schema import ApiMessage
from logbrook.records.batch import NO_PRODUCER_ID, read_header
from logbrook.records.builder import NO_PRODUCER_EPOCH

TRANSACTION_TIMEOUT_MS = 60_000

_FEATURE = "transaction.version"
_SECOND = 2
# The last versions of the first protocol. Those of AddPartitionsToTxn that follow are for brokers.
_FIRST_PROTOCOL: dict[type[ApiMessage], int] = {
    ProduceRequest: 11,
    AddPartitionsToTxnRequest: 3,
    TxnOffsetCommitRequest: 4,
    EndTxnRequest: 4,
}
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
# What a producer is told whose transaction the broker has ended.
_ENDED = _FENCED | {ErrorCode.INVALID_TXN_STATE}
_GONE = (ProducerFencedError, TransactionTimedOutError)


class TransactionalProducer(Producer):
    """As `Producer`, with batches that are transactional, between `begin` and `commit` or `abort`.

    After an error there is `abort`, and then the next `begin`; unless the error is ProducerFencedError or
    TransactionTimedOutError, or comes from the end of a transaction. Leaving `with` aborts what is open.
    """

    def __init__(
        self,
        client: Client,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX,
        request_bytes_max: int = REQUEST_BYTES_MAX,
    ) -> None:
        """Takes the transactional id over, and waits until what its predecessors had open has ended."""
        self._transactional_id: str = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._coordinators = Coordinators(client)
        self._speaks_second = False
        self._is_open = False
        self._is_closed = False
        self._needs_new_epoch = False
        # When something of the transaction was first sent; the broker counts from a little later.
        self._begun_at_s: float | None = None
        self._partitions: set[TopicPartition] = set()
        super().__init__(
            client,
            delivery_timeout_s=delivery_timeout_s,
            in_flight_bytes_max=in_flight_bytes_max,
            request_bytes_max=request_bytes_max,
        )

    def __enter__(self) -> "TransactionalProducer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if self._is_open:
                with suppress(LogbrookError):
                    self.abort()
        finally:
            self.close()

    @property
    def speaks_second_version(self) -> bool:
        """Of the protocol."""
        return self._speaks_second

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """What the open transaction has written to so far."""
        return frozenset(self._partitions) | {TopicPartition(*key) for key in self._busy}

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One that is committed at the end of the block, and aborted, if that is possible, when an error ends it."""
        self.begin()
        try:
            yield
            self.flush()
        except BaseException:
            with suppress(LogbrookError):
                self.abort()
            raise
        self.commit()

    def begin(self) -> None:
        if self._is_open:
            raise RuntimeError("a transaction is open already")
        with self._remembering_failure():
            if self._needs_new_epoch:
                self._go_on_as(*self._persist(self._init_producer_id, self._delivery_timeout_s))
                self._needs_new_epoch = False
        self._is_open = True

    def send(self, topic: str, partition: int, batch: bytes | bytearray | memoryview) -> None:
        """As `Producer.send`. Raises ValueError as well for a batch that is not transactional."""
        self._check_open()
        if not read_header(batch).is_transactional:
            raise ValueError(f"a batch for {topic}-{partition} that is not transactional")
        super().send(topic, partition, batch)

    def send_offsets(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Let a group, which nobody joins, be so far when the transaction is committed."""
        self._check_open()
        with self._remembering_failure():
            self._note_begin()
            if not self._speaks_second:
                self._persist(lambda: self._add_group(group_id), self._delivery_timeout_s)
            self._persist(lambda: self._commit_offsets(group_id, offsets), self._delivery_timeout_s)

    def commit(self) -> None:
        """Returns when everything is written and the transaction is decided."""
        self._check_open()
        self.flush()
        self._end(is_commit=True)

    def abort(self) -> None:
        """Nobody who reads what is committed will see anything of the transaction."""
        self._check_open()
        if self._is_closed or isinstance(self._failure, _GONE):
            # The broker aborts it, or has done so.
            self._is_open = False
            return
        self._failure = None
        self._drop()
        self._end(is_commit=False)

    def close(self) -> None:
        """Hang up. A transaction that is open is aborted by whoever has the transactional id next, or in time."""
        self._is_closed = True
        super().close()

    def committed(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """As `Coordinators.committed`, when that is stable."""
        return self._persist(lambda: self._coordinators.committed(group_id), self._delivery_timeout_s)

    def _check_open(self) -> None:
        if not self._is_open:
            raise RuntimeError("no transaction is open")

    def _note_begin(self) -> None:
        self._begun_at_s = monotonic() if self._begun_at_s is None else self._begun_at_s

    def _end(self, *, is_commit: bool) -> None:
        self._is_open = False
        # An abort that does not come through is made up for by the next who has the transactional id.
        within_s = self._delivery_timeout_s if is_commit else self._client.timeout_s
        has_new_epoch = False
        with self._remembering_failure():
            if self._begun_at_s is not None:
                answer = self._persist(lambda: self._request_end(is_commit), within_s)
                if has_new_epoch := self._speaks_second and answer.producer_id != NO_PRODUCER_ID:
                    self._go_on_as(answer.producer_id, answer.producer_epoch)
            # The sequences of what was given up are missing, and only a new epoch begins to count again.
            self._needs_new_epoch = not is_commit and not has_new_epoch
            self._begun_at_s = None
            self._partitions.clear()

    @contextmanager
    def _remembering_failure(self) -> Iterator[None]:
        with super()._remembering_failure():
            try:
                yield
            except BrokerError as error:
                raise self._explained(error) from error

    def _explained(self, error: BrokerError) -> BrokerError:
        """A transaction that the broker has ended looks like one that somebody else has ended: only time tells."""
        timeout_s = self._transaction_timeout_ms / 1000
        if isinstance(error, _GONE):
            return error
        has_expired = self._begun_at_s is not None and monotonic() - self._begun_at_s >= timeout_s
        if error.code in _ENDED and has_expired:
            return TransactionTimedOutError(self._transactional_id, timeout_s, error)
        return ProducerFencedError(self._transactional_id, error) if error.code in _FENCED else error

    def _dispatch(self) -> None:
        added = {TopicPartition(*key) for key in self._busy} - self._partitions
        if added:
            self._note_begin()
            if not self._speaks_second:
                self._persist(lambda: self._add_partitions(added), self._delivery_timeout_s)
            self._partitions |= added
        super()._dispatch()

    def _produce_version(self, connection: Connection) -> int:
        return self._version_of(ProduceRequest, connection)

    def _version_of(self, request: type[ApiMessage], connection: Connection) -> int:
        version = connection.version_of(request)
        return version if self._speaks_second else min(version, _FIRST_PROTOCOL.get(request, version))

    def _init_producer_id(self) -> tuple[int, int]:
        # Who has had the id before says so, and is fenced if somebody else has it by now (KIP-360).
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            producer_id=self.producer_id if self._needs_new_epoch else NO_PRODUCER_ID,
            producer_epoch=self.producer_epoch if self._needs_new_epoch else NO_PRODUCER_EPOCH,
        )
        with self._coordinator() as connection:
            self._speaks_second = _finalized(connection, _FEATURE) >= _SECOND
            answer = connection.request(request, InitProducerIdResponse)
            check(answer.error_code, f"taking over transactional id {self._transactional_id!r}")
        return answer.producer_id, answer.producer_epoch

    def _add_partitions(self, added: Iterable[TopicPartition]) -> None:
        by_topic: dict[str, list[int]] = {}
        for name, number in sorted(added):
            by_topic.setdefault(name, []).append(number)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in by_topic.items()
            ],
        )
        with self._coordinator() as connection:
            version = self._version_of(AddPartitionsToTxnRequest, connection)
            for topic in connection.request(request, AddPartitionsToTxnResponse, version).results_by_topic_v3_and_below:
                for one in topic.results_by_partition:
                    # Another has failed, and says why.
                    if one.partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                        what = f"adding {topic.name}-{one.partition_index} to the transaction"
                        check(one.partition_error_code, f"{what} of {self._transactional_id!r}")

    def _add_group(self, group_id: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group_id,
        )
        with self._coordinator() as connection:
            answer = connection.request(request, AddOffsetsToTxnResponse)
            check(answer.error_code, f"adding group {group_id!r} to the transaction of {self._transactional_id!r}")

    def _commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, number), (offset, metadata) in offsets.items():
            one = TxnOffsetCommitRequestPartition(
                partition_index=number, committed_offset=offset, committed_metadata=metadata
            )
            by_topic.setdefault(topic, []).append(one)
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=some) for name, some in by_topic.items()],
        )
        with self._coordinators.connection(CoordinatorKind.GROUP, group_id) as connection:
            version = self._version_of(TxnOffsetCommitRequest, connection)
            for answered in connection.request(request, TxnOffsetCommitResponse, version).topics:
                for partition in answered.partitions:
                    what = f"committing for group {group_id!r} to {answered.name}-{partition.partition_index}"
                    check(partition.error_code, what)

    def _request_end(self, is_commit: bool) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=is_commit,
        )
        with self._coordinator() as connection:
            answer = connection.request(request, EndTxnResponse, self._version_of(EndTxnRequest, connection))
            # What never reached the broker needs no end.
            if is_commit or answer.error_code != ErrorCode.INVALID_TXN_STATE:
                verb = "committing" if is_commit else "aborting"
                check(answer.error_code, f"{verb} the transaction of {self._transactional_id!r}")
        return answer

    @contextmanager
    def _coordinator(self) -> Iterator[Connection]:
        with self._coordinators.connection(CoordinatorKind.TRANSACTION, self._transactional_id) as connection:
            yield connection


def _finalized(connection: Connection, feature: str) -> int:
    """The version of a feature that a cluster has agreed on, 0 for none."""
    version = connection.version_of(ApiVersionsRequest)
    request = ApiVersionsRequest(client_software_name="logbrook", client_software_version=VERSION)
    answer = connection.request(request, ApiVersionsResponse, version)
    check(answer.error_code, "ApiVersions")
    return next((one.max_version_level for one in answer.finalized_features if one.name == feature), 0)
