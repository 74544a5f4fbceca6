"""A transactional producer (KIP-98): its batches and committed offsets become visible together or not at all.

The newest producer with a transactional id owns it. Transactions that its predecessors left open are aborted, and
their later requests fail with `ProducerFencedError`.

There are two versions of the protocol. In the first, a producer adds each partition and each group to its transaction
before it writes to it, and keeps its epoch and sequences from one transaction to the next. In the second (KIP-890) the
brokers add them implicitly, and the end of each transaction bumps the epoch, so that a late request cannot become part
of a later transaction. A cluster enables the second with the feature `transaction.version`, and still expects the first
from producers that use older versions of the requests.

EndTxn is retried when its response is lost, which is safe because the coordinator repeats its answer. When there is no
answer in time, the outcome is unknown; a new producer with the same id can determine it by reading committed records.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic

from logbrook.client.client import Client, group_by_topic
from logbrook.client.connection import Connection
from logbrook.client.coordinators import CoordinatorKind, Coordinators, OffsetAndMetadata
from logbrook.client.errors import BrokerError, ProducerFencedError, TransactionTimedOutError, check_code
from logbrook.client.producer import DELIVERY_TIMEOUT_S, IN_FLIGHT_BYTES_MAX, REQUEST_BYTES_MAX, Producer
from logbrook.client.retry import RetryPolicy
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.model.version import VERSION
from logbrook.protocol.error_classes import FENCED
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
_SECOND_VERSION = 2
# The newest request versions of the first protocol. Later ones of AddPartitionsToTxn are for brokers.
_FIRST_PROTOCOL: dict[type[ApiMessage], int] = {
    ProduceRequest: 11,
    AddPartitionsToTxnRequest: 3,
    TxnOffsetCommitRequest: 4,
    EndTxnRequest: 4,
}
# Codes for a producer whose transaction the coordinator has ended: fenced, or timed out.
_TRANSACTION_ENDED = FENCED | {ErrorCode.INVALID_TXN_STATE}
# After these the transaction is already aborted, or will be by the coordinator.
_ENDED_ERRORS = (ProducerFencedError, TransactionTimedOutError)


class TransactionalProducer(Producer):
    """A `Producer` of transactional batches, between `begin` and `commit` or `abort`.

    After an error, call `abort` and then `begin` again; not after ProducerFencedError, TransactionTimedOutError or an
    error of `commit` or `abort` itself. Leaving a `with` block aborts an open transaction.
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
        retry: RetryPolicy | None = None,
    ) -> None:
        """Take over the transactional id, fencing its predecessors, and wait until their transactions are completed."""
        self._transactional_id: str = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._coordinators = Coordinators(client)
        # True if the cluster has `transaction.version` 2 (KIP-890).
        self.uses_second_version = False
        self._is_open = False
        self._is_closed = False
        self._needs_new_epoch = False
        # When the first request of the transaction was sent. The coordinator's timeout starts a little later.
        self._begun_at_s: float | None = None
        self._partitions: set[TopicPartition] = set()
        super().__init__(
            client,
            delivery_timeout_s=delivery_timeout_s,
            in_flight_bytes_max=in_flight_bytes_max,
            request_bytes_max=request_bytes_max,
            retry=retry,
        )

    def __exit__(self, *_: object) -> None:
        try:
            if self._is_open:
                with suppress(LogbrookError):
                    self.abort()
        finally:
            self.close()

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions of the open transaction."""
        return frozenset(self._partitions) | {TopicPartition(*key) for key in self._pending}

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin a transaction, and commit it at the end of the block; on an exception abort it, if that is possible."""
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
        """Begin a transaction. Raises RuntimeError if one is open."""
        if self._is_open:
            raise RuntimeError("a transaction is open already")
        with self._recording_failure():
            if self._needs_new_epoch:
                self._restart_as(*self._run_retrying(self._init_producer_id, self._delivery_timeout_s))
                self._needs_new_epoch = False
        self._is_open = True

    def send(self, topic: str, partition: int, batch: bytes | bytearray | memoryview) -> None:
        """Queue a batch, as `Producer.send` does. Raises ValueError also for a batch that is not transactional."""
        self._check_open()
        if not read_header(batch).is_transactional:
            raise ValueError(f"a batch for {topic}-{partition} that is not transactional")
        super().send(topic, partition, batch)

    def send_offsets(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit offsets of a group without members as part of the transaction."""
        self._check_open()
        with self._recording_failure():
            self._mark_begun()
            if not self.uses_second_version:
                self._run_retrying(lambda: self._add_group(group_id), self._delivery_timeout_s)
            self._run_retrying(lambda: self._commit_offsets(group_id, offsets), self._delivery_timeout_s)

    def commit(self) -> None:
        """Flush, and commit the transaction. Returns when the commit is decided; the markers may follow later."""
        self._check_open()
        self.flush()
        self._end(is_commit=True)

    def abort(self) -> None:
        """Abort the transaction: consumers with read_committed see nothing of it."""
        self._check_open()
        if self._is_closed or isinstance(self._failure, _ENDED_ERRORS):
            self._is_open = False
            return
        self._failure = None
        self._discard_batches()
        self._end(is_commit=False)

    def close(self) -> None:
        """Close the connections. An open transaction is aborted by the next producer with the id, or by its timeout."""
        self._is_closed = True
        super().close()

    def committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group, retrying while they are unstable."""
        return self._run_retrying(lambda: self._coordinators.committed(group_id), self._delivery_timeout_s)

    def _check_open(self) -> None:
        if not self._is_open:
            raise RuntimeError("no transaction is open")

    def _mark_begun(self) -> None:
        if self._begun_at_s is None:
            self._begun_at_s = monotonic()

    def _end(self, *, is_commit: bool) -> None:
        self._is_open = False
        # An abort that fails is made up for by the next InitProducerId.
        timeout_s = self._delivery_timeout_s if is_commit else self._client.timeout_s
        has_new_epoch = False
        with self._recording_failure():
            if self._begun_at_s is not None:
                response = self._run_retrying(lambda: self._request_end(is_commit), timeout_s)
                has_new_epoch = self.uses_second_version and response.producer_id != NO_PRODUCER_ID
                if has_new_epoch:
                    self._restart_as(ProducerId(response.producer_id), ProducerEpoch(response.producer_epoch))
            # Discarded batches leave a gap in the sequences, which only a new epoch resets.
            self._needs_new_epoch = not is_commit and not has_new_epoch
            self._begun_at_s = None
            self._partitions.clear()

    @contextmanager
    def _recording_failure(self) -> Iterator[None]:
        with super()._recording_failure():
            try:
                yield
            except BrokerError as error:
                raise self._specific_error(error) from error

    def _specific_error(self, error: BrokerError) -> BrokerError:
        """Return ProducerFencedError or TransactionTimedOutError, or `error` if it is neither.

        The coordinator's error code is the same for both; they are distinguished by how long the transaction was open.
        """
        timeout_s = self._transaction_timeout_ms / 1000
        if isinstance(error, _ENDED_ERRORS):
            return error
        has_expired = self._begun_at_s is not None and monotonic() - self._begun_at_s >= timeout_s
        if error.code in _TRANSACTION_ENDED and has_expired:
            return TransactionTimedOutError(self._transactional_id, timeout_s, error)
        return ProducerFencedError(self._transactional_id, error) if error.code in FENCED else error

    def _send_pending(self) -> None:
        added = {TopicPartition(*key) for key in self._pending} - self._partitions
        if added:
            self._mark_begun()
            if not self.uses_second_version:
                self._run_retrying(lambda: self._add_partitions(added), self._delivery_timeout_s)
            self._partitions |= added
        super()._send_pending()

    def _produce_version(self, connection: Connection) -> int:
        return self._version_of(ProduceRequest, connection)

    def _version_of(self, request: type[ApiMessage], connection: Connection) -> int:
        version = connection.version_of(request)
        return version if self.uses_second_version else min(version, _FIRST_PROTOCOL.get(request, version))

    def _init_producer_id(self) -> tuple[ProducerId, ProducerEpoch]:
        # KIP-360: with its current id and epoch, a producer bumps its own epoch, or is fenced if another has the id.
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            producer_id=self.producer_id if self._needs_new_epoch else NO_PRODUCER_ID,
            producer_epoch=self.producer_epoch if self._needs_new_epoch else NO_PRODUCER_EPOCH,
        )
        with self._coordinator() as connection:
            self.uses_second_version = _finalized(connection, _FEATURE) >= _SECOND_VERSION
            response = connection.request(request, InitProducerIdResponse)
            check_code(response.error_code, f"taking over transactional id {self._transactional_id!r}")
        return ProducerId(response.producer_id), ProducerEpoch(response.producer_epoch)

    def _add_partitions(self, added: Iterable[TopicPartition]) -> None:
        by_topic = group_by_topic((partition, partition.partition) for partition in sorted(added))
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in by_topic.items()
            ],
        )
        with self._coordinator() as connection:
            version = self._version_of(AddPartitionsToTxnRequest, connection)
            for topic in connection.request(request, AddPartitionsToTxnResponse, version).results_by_topic_v3_and_below:
                for result in topic.results_by_partition:
                    # OPERATION_NOT_ATTEMPTED: another partition has failed, and has the reason.
                    if result.partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                        operation = f"adding {topic.name}-{result.partition_index} to the transaction"
                        check_code(result.partition_error_code, f"{operation} of {self._transactional_id!r}")

    def _add_group(self, group_id: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group_id,
        )
        with self._coordinator() as connection:
            response = connection.request(request, AddOffsetsToTxnResponse)
            check_code(
                response.error_code, f"adding group {group_id!r} to the transaction of {self._transactional_id!r}"
            )

    def _commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        entries = [
            TxnOffsetCommitRequestPartition(
                partition_index=partition.partition, committed_offset=offset, committed_metadata=metadata
            )
            for partition, (offset, metadata) in offsets.items()
        ]
        by_topic = group_by_topic(zip(offsets, entries, strict=True))
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=entries) for name, entries in by_topic.items()],
        )
        with self._coordinators.connection(CoordinatorKind.GROUP, group_id) as connection:
            version = self._version_of(TxnOffsetCommitRequest, connection)
            for answered in connection.request(request, TxnOffsetCommitResponse, version).topics:
                for partition in answered.partitions:
                    operation = f"committing for group {group_id!r} to {answered.name}-{partition.partition_index}"
                    check_code(partition.error_code, operation)

    def _request_end(self, is_commit: bool) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=is_commit,
        )
        with self._coordinator() as connection:
            response = connection.request(request, EndTxnResponse, self._version_of(EndTxnRequest, connection))
            # An abort of a transaction of which the coordinator has received nothing is INVALID_TXN_STATE.
            if is_commit or response.error_code != ErrorCode.INVALID_TXN_STATE:
                verb = "committing" if is_commit else "aborting"
                check_code(response.error_code, f"{verb} the transaction of {self._transactional_id!r}")
        return response

    @contextmanager
    def _coordinator(self) -> Iterator[Connection]:
        with self._coordinators.connection(CoordinatorKind.TRANSACTION, self._transactional_id) as connection:
            yield connection


def _finalized(connection: Connection, feature: str) -> int:
    """Return the finalized version level of a feature, 0 if it has none."""
    version = connection.version_of(ApiVersionsRequest)
    request = ApiVersionsRequest(client_software_name="logbrook", client_software_version=VERSION)
    response = connection.request(request, ApiVersionsResponse, version)
    check_code(response.error_code, "ApiVersions")
    return next((level.max_version_level for level in response.finalized_features if level.name == feature), 0)
