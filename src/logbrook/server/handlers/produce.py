"""Produce: append each partition's batch, and respond when all of them are durable.

With acks=1 the response is sent when the batches are durable on this broker, with acks=all when all in-sync replicas
have them; on a single node that is the same. With acks=0 there is no
response, but the request counts as in flight until then because it holds memory; on an error the connection is closed,
which is the only way to report it. A transactional batch is accepted only while its transaction is open.

Of a record batch, the header and the checksum are checked, once. Topics whose settings concern the records themselves
are the exception (`LogConfig.needs_inspection`): their batches are decoded first, in another thread unless they are
small, and appended after that.
"""

from collections.abc import Iterable
from functools import partial

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.coordinator import CoordinatorError, ProducerIdentity
from logbrook.model import LogbrookError, TopicPartition
from logbrook.protocol.error_codes import RETRIABLE, ErrorCode
from logbrook.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from logbrook.protocol.schema import ZERO_UUID
from logbrook.records.batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)
from logbrook.records.errors import RejectedRecordsError
from logbrook.server.api import Api, CloseConnectionError, DeferredResponse, HandlerResult, RequestContext
from logbrook.server.cluster.errors import NotEnoughReplicasError, NotLeaderError
from logbrook.server.errors import RequestRefusedError, error_code
from logbrook.server.record_inspection import Inspection
from logbrook.server.services import Services
from logbrook.storage.errors import BatchTooLargeError, OutOfOrderSequenceError, PartitionNotFoundError
from logbrook.storage.log import Log
from logbrook.storage.pending_append import PendingAppend

# KIP-890: versions whose producers add partitions by writing to them, and whose producers can abort and continue.
_ADDS_PARTITIONS_SINCE = 12
_ABORTABLE_SINCE = 11
# Errors of the transaction coordinator, as producers expect them: a fenced epoch, and a retriable error.
_CODES = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}
# After these a producer sends a batch again, the last one in parts.
_REPEATED = RETRIABLE | {ErrorCode.MESSAGE_TOO_LARGE}
# Errors that concern all batches of a transaction in a partition, not only the first.
_JOIN_ERRORS = (CoordinatorError, RequestRefusedError, NotLeaderError, PartitionNotFoundError)
_ACKS = (-1, 0, 1)
_ALL = -1
_MESSAGE_LENGTH_MAX = 300


def handle(services: Services, request: ProduceRequest, context: RequestContext) -> HandlerResult:
    produce = _Produce(services, request, context)
    for topic in request.topic_data:
        produce.append_topic(topic.topic_id, topic.name, topic.partition_data)
    return produce.respond()


API = Api(ProduceRequest, ProduceResponse, handle)


class _Produce:
    """One request in flight."""

    __slots__ = (
        "_appends_open",
        "_context",
        "_deferred",
        "_error",
        "_inspections",
        "_leaders",
        "_request",
        "_services",
        "_topics",
    )

    def __init__(self, services: Services, request: ProduceRequest, context: RequestContext) -> None:
        self._services = services
        self._request = request
        self._context = context
        self._topics: list[TopicProduceResponse] = []
        self._appends_open = 0
        self._error: PartitionProduceResponse | None = None
        self._deferred: DeferredResponse | None = None
        self._inspections: list[Inspection] = []
        # The leaders of partitions that other brokers lead.
        self._leaders: dict[int, NodeEndpoint] | None = None

    def append_topic(self, topic_id: bytes, name: str, partitions: Iterable[PartitionProduceData]) -> None:
        responses: list[PartitionProduceResponse] = []
        self._topics.append(TopicProduceResponse(topic_id=topic_id, name=name, partition_responses=responses))
        try:
            if topic_id != ZERO_UUID:
                name = self._services.topics.metadata.topic_with_id(topic_id).name
            if self._services.authorizer.is_enabled:
                self._authorize(name)
            self._check(name)
        except LogbrookError as error:
            responses += [self._failed(data.index, error) for data in partitions]
            return
        for data in partitions:
            responses.append(self._append(TopicPartition(name, data.index), data))

    def _authorize(self, topic: str) -> None:
        """Raises AuthorizationFailedError."""
        authorizer, transactional_id = self._services.authorizer, self._request.transactional_id
        if transactional_id is not None:
            authorizer.check(self._context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        authorizer.check(self._context, AclOperation.WRITE, ResourceType.TOPIC, topic)

    def respond(self) -> HandlerResult:
        """Return the response, deferred while appends are open. Raises CloseConnectionError."""
        if self._appends_open == 0 or (self._request.acks == 0 and self._error is not None):
            return self._response()
        self._deferred = DeferredResponse(self._abandon if self._inspections else None)
        return self._deferred

    def _abandon(self) -> None:
        for inspection in self._inspections:
            inspection.abandon()

    def _response(self) -> ProduceResponse | None:
        """Raises CloseConnectionError."""
        if self._request.acks != 0:
            leaders = () if self._leaders is None else list(self._leaders.values())
            return ProduceResponse(responses=self._topics, node_endpoints=leaders)
        if self._error is not None:
            raise CloseConnectionError(f"acks=0 and a failed append: {self._error.error_message}")
        return None

    def _check(self, topic: str) -> None:
        if self._request.acks not in _ACKS:
            raise RequestRefusedError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {self._request.acks}, not -1, 0 or 1")
        if self._services.topics.is_internal(topic):
            raise RequestRefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {topic!r} is internal and read-only")

    def _append(self, partition: TopicPartition, data: PartitionProduceData) -> PartitionProduceResponse:
        response = PartitionProduceResponse(index=partition.partition)
        records = data.records
        assert records is None or isinstance(records, memoryview)
        self._appends_open += 1
        try:
            log = self._services.topics.log(partition)
            if log.config.needs_inspection:
                self._inspect(response, log, records)
            else:
                self._append_batch(response, log, records)
        except LogbrookError as error:
            self._appends_open -= 1
            self._fail(response, error, partition)
        return response

    def _append_batch(self, response: PartitionProduceResponse, log: Log, records: memoryview | None) -> None:
        """Check the rules of the protocol that `Log.append` does not, then append. Raises LogbrookError."""
        if records is None or len(records) < HEADER_BYTES:
            raise _no_batch()
        header = read_header(records)
        if header.magic == MAGIC_V2 and LENGTH_PREFIX_BYTES + header.batch_length < len(records):
            raise RequestRefusedError(ErrorCode.INVALID_RECORD, "a partition needs exactly one batch, not several")
        if header.attributes & TRANSACTIONAL_BIT or self._request.transactional_id is not None:
            if self._services.replicas is None:
                self._join_transaction(log.partition, header)
            elif self._waits_to_join(response, log, records, header):
                return
        self._append_checked(response, log, records, header)

    def _append_checked(
        self, response: PartitionProduceResponse, log: Log, records: memoryview, header: BatchHeader
    ) -> None:
        """Raises LogbrookError."""
        services = self._services
        if self._request.acks == _ALL:
            if services.replicas is not None:
                services.replicas.leading.check_in_sync(log.partition)
            elif log.config.min_insync_replicas > 1:
                raise NotEnoughReplicasError(log.partition, 1, log.config.min_insync_replicas)
        services.appender.append(
            log,
            records,
            partial(self._appended, response, log),
            header=header,
            waits_for_replicas=self._request.acks == _ALL,
            timeout_s=self._request.timeout_ms / 1000,
        )
        services.probe.topics[log.partition.topic].took(len(records), header.count)

    def _inspect(self, response: PartitionProduceResponse, log: Log, records: memoryview | None) -> None:
        """Raises BatchTooLargeError or RequestRefusedError."""
        if records is None or len(records) < HEADER_BYTES:
            raise _no_batch()
        if len(records) > log.config.max_message_bytes:
            # As in Kafka, the limit applies to the batch as it arrives and as it is stored.
            raise BatchTooLargeError(log.partition, len(records), log.config.max_message_bytes)
        inspection = self._services.inspector.inspect(
            log, records, lambda result: self._inspected(response, log, result)
        )
        if inspection is not None:
            self._inspections.append(inspection)

    def _inspected(self, response: PartitionProduceResponse, log: Log, result: memoryview | LogbrookError) -> None:
        """Append an inspected batch. The topic may have been deleted, and the transaction ended, meanwhile."""
        try:
            if isinstance(result, LogbrookError):
                raise result
            self._check_log(log)
            self._append_batch(response, log, result)
        except LogbrookError as error:
            self._fail(response, error)
            self._finish_append()

    def _join_transaction(self, partition: TopicPartition, header: BatchHeader) -> None:
        """Check that the batch belongs to an open transaction: otherwise no marker would ever decide it.

        Producers of transaction version 2 add a partition by writing to it (KIP-890). Raises RequestRefusedError.
        """
        transactional_id = self._transactional_id(header)
        transaction = (transactional_id, header.producer_id, header.producer_epoch)
        transactions = self._services.transactions
        try:
            if self._context.version >= _ADDS_PARTITIONS_SINCE:
                transactions.add_partitions(*transaction, [partition])
            else:
                transactions.check_partition(*transaction, partition)
        except CoordinatorError as error:
            raise self._transaction_error(error) from error

    def _waits_to_join(
        self, response: PartitionProduceResponse, log: Log, records: memoryview, header: BatchHeader
    ) -> bool:
        """True if the batch is appended later, after AddPartitionsToTxn at its coordinator, perhaps another broker.

        Raises RequestRefusedError.
        """
        transactional_id = self._transactional_id(header)
        producer = ProducerIdentity(header.producer_id, header.producer_epoch)
        transactions, joins = self._services.transactions, self._services.transactions.joins

        def resume(error: LogbrookError | None) -> None:
            try:
                if error is not None:
                    raise error
                self._check_log(log)
                self._append_batch(response, log, records)
            except LogbrookError as refusal:
                self._refuse(response, refusal)

        async def join() -> None:
            bug = RequestRefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, "an unexpected error; see the broker's log")
            failure: LogbrookError | None = bug
            try:
                only_check = self._context.version < _ADDS_PARTITIONS_SINCE
                await transactions.join(transactional_id, producer, log.partition, only_check=only_check)
                self._check_log(log)
                self._append_checked(response, log, records, header)
                failure = None
            except LogbrookError as error:
                failure = error if isinstance(error, _JOIN_ERRORS) else _earlier_refused()
                self._refuse(response, error)
            finally:
                if failure is bug:
                    self._refuse(response, bug)
                joins.end(log.partition, header, failure, is_repeated=response.error_code in _REPEATED)

        if joins.wait(log.partition, header, resume):
            return True
        if _has_open_transaction(log, header):
            # Its first batch has joined the transaction.
            return False
        self._check_is_first(log, header)
        joins.begin(log.partition, header)
        transactions.own(join())
        return True

    def _check_is_first(self, log: Log, header: BatchHeader) -> None:
        """Check a batch that begins a transaction in the log: an earlier one of the producer may have been refused.

        Raises RequestRefusedError or OutOfOrderSequenceError.
        """
        producer = log.producers.get(header.producer_id)
        if producer is None and self._services.transactions.joins.follows_refused(log.partition, header):
            raise _earlier_refused()
        is_new = producer is None or producer.epoch < header.producer_epoch
        if self._context.version >= _ADDS_PARTITIONS_SINCE and is_new and header.base_sequence > 0:
            # Each transaction has an epoch of its own.
            raise OutOfOrderSequenceError(log.partition, header.producer_id, header.base_sequence, 0)

    def _check_log(self, log: Log) -> None:
        """Raises PartitionNotFoundError or NotLeaderError if the partition has another log or leader by now."""
        if self._services.topics.log(log.partition) is not log:
            raise PartitionNotFoundError(log.partition)

    def _refuse(self, response: PartitionProduceResponse, error: LogbrookError) -> None:
        """Answer a batch whose response was deferred."""
        is_of_transaction = isinstance(error, CoordinatorError | RequestRefusedError)
        self._fail(response, self._transaction_error(error) if is_of_transaction else error)
        self._finish_append()

    def _transactional_id(self, header: BatchHeader) -> str:
        """Raises RequestRefusedError."""
        transactional_id = self._request.transactional_id
        if transactional_id is None or not header.is_transactional:
            raise RequestRefusedError(
                ErrorCode.INVALID_TXN_STATE,
                "transactional batches need a transactional id, and a transactional id such batches",
            )
        return transactional_id

    def _transaction_error(self, error: LogbrookError) -> RequestRefusedError:
        code = error_code(error)
        if code is ErrorCode.INVALID_TXN_STATE and self._context.version >= _ABORTABLE_SINCE:
            code = ErrorCode.TRANSACTION_ABORTABLE
        return RequestRefusedError(_CODES.get(code, code), str(error))

    def _appended(self, response: PartitionProduceResponse, log: Log, append: PendingAppend) -> None:
        """Fill in the partition's response."""
        if append.error is not None:
            self._fail(response, append.error, log.partition)
        else:
            response.base_offset = append.base_offset
            response.log_append_time_ms = append.log_append_time_ms
            response.log_start_offset = log.log_start_offset
        self._finish_append()

    def _finish_append(self) -> None:
        """Complete the request's response after the last append."""
        self._appends_open -= 1
        if self._appends_open == 0 and self._deferred is not None:
            try:
                self._deferred.complete(self._response())
            except CloseConnectionError as error:
                self._deferred.fail(error)

    def _refer(self, response: PartitionProduceResponse, partition: TopicPartition) -> None:
        """Tell the client the leader of a partition, so that it need not ask for the metadata (KIP-951)."""
        leader = self._services.view.current_leader(partition, self._context.listener)
        if leader is not None:
            address = leader.address
            response.current_leader = LeaderIdAndEpoch(leader_id=address.broker_id, leader_epoch=leader.leader_epoch)
            self._leaders = self._leaders or {}
            self._leaders[address.broker_id] = NodeEndpoint(
                node_id=address.broker_id, host=address.host, port=address.port, rack=address.rack
            )

    def _failed(self, index: int, error: LogbrookError) -> PartitionProduceResponse:
        response = PartitionProduceResponse(index=index)
        self._fail(response, error)
        return response

    def _fail(
        self, response: PartitionProduceResponse, error: LogbrookError, partition: TopicPartition | None = None
    ) -> None:
        response.error_code = error_code(error)
        if partition is not None and isinstance(error, NotLeaderError):
            self._refer(response, partition)
        # The client chose part of the message, and it is repeated for every partition.
        response.error_message = str(error)[:_MESSAGE_LENGTH_MAX]
        response.base_offset = -1
        if isinstance(error, RejectedRecordsError):
            response.record_errors = [
                BatchIndexAndErrorMessage(batch_index=fault.batch_index, batch_index_error_message=fault.reason)
                for fault in error.faults
            ]
        self._error = response


def _has_open_transaction(log: Log, header: BatchHeader) -> bool:
    """True if the log has records of this transaction: then its coordinator knows the partition."""
    producer = log.producers.get(header.producer_id)
    return (
        producer is not None
        and producer.epoch == header.producer_epoch
        and producer.transaction_start_offset is not None
    )


def _earlier_refused() -> RequestRefusedError:
    return RequestRefusedError(ErrorCode.NOT_ENOUGH_REPLICAS, "an earlier batch of the producer was refused")


def _no_batch() -> RequestRefusedError:
    return RequestRefusedError(ErrorCode.INVALID_RECORD, "a partition needs exactly one batch, not none")
