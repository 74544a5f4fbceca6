"""Produce: append each partition's batch, and answer when all of them are as durable as the broker promises.

acks=1 and acks=all are answered alike: when the batch is committed. With acks=0 nothing is answered, though the request
counts as under way until then, because its bytes are; if something goes wrong, hanging up is the only way to say so,
and the client then learns that it has to look. A record batch is checked by its header and its checksum alone. A batch
of a transaction is taken only while that is open.
"""

from asyncio import Future
from typing import Any

from logbrook.core.transactions.errors import TransactionError
from logbrook.model import LogbrookError, TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from logbrook.protocol.schema import ZERO_UUID
from logbrook.records.batch import HEADER_BYTES, TRANSACTIONAL_BIT, BatchHeader, read_header
from logbrook.server.api import Api, Call, CloseConnectionError, Handled
from logbrook.server.errors import error_code
from logbrook.server.services import Services
from logbrook.storage.log import Log
from logbrook.storage.ticket import Ticket

# KIP-890: producers that add partitions by writing to them, and those that know when to abort and go on.
_ADDS_PARTITIONS_SINCE = 12
_ABORTABLE_SINCE = 11
# What producers know better: an epoch that is too old, and something to try again.
_CODES = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
}
_ACKS = (-1, 0, 1)
_ALL = -1
_MESSAGE_LENGTH_MAX = 300


def handle(services: Services, request: ProduceRequest, call: Call) -> Handled:
    production = _Production(services, request, call.version)
    for topic in request.topic_data:
        production.append_topic(topic.topic_id, topic.name, topic.partition_data)
    return production.answer()


API = Api(ProduceRequest, ProduceResponse, handle)


class _RefusedError(Exception):
    """A partition's part of the request that is not even tried."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Production:
    """One request under way."""

    def __init__(self, services: Services, request: ProduceRequest, version: int) -> None:
        self._services = services
        self._request = request
        self._version = version
        self._responses: list[TopicProduceResponse] = []
        self._open = 0
        self._error: PartitionProduceResponse | None = None
        self._future: Future[Any] | None = None

    def append_topic(self, topic_id: bytes, name: str, partitions: Any) -> None:
        responses: list[PartitionProduceResponse] = []
        self._responses.append(TopicProduceResponse(topic_id=topic_id, name=name, partition_responses=responses))
        try:
            if topic_id != ZERO_UUID:
                name = self._services.topics.metadata.topic_with_id(topic_id).name
            self._check(name)
        except LogbrookError as error:
            responses += [self._failed(one.index, error_code(error), str(error)) for one in partitions]
            return
        except _RefusedError as refused:
            responses += [self._failed(one.index, refused.code, str(refused)) for one in partitions]
            return
        for one in partitions:
            responses.append(self._append(TopicPartition(name, one.index), one))

    def answer(self) -> Handled:
        """Raises CloseConnectionError."""
        if self._open == 0 or (self._request.acks == 0 and self._error is not None):
            return self._response()
        self._future = self._services.loop.create_future()
        return self._future

    def _response(self) -> ProduceResponse | None:
        """Raises CloseConnectionError."""
        if self._request.acks != 0:
            return ProduceResponse(responses=self._responses)
        if self._error is not None:
            raise CloseConnectionError(f"acks=0, and {self._error.error_message}")
        return None

    def _check(self, topic: str) -> None:
        if self._request.acks not in _ACKS:
            raise _RefusedError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks may be -1, 0 or 1, not {self._request.acks}")
        if self._services.topics.is_internal(topic):
            raise _RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {topic!r} is the broker's own")

    def _append(self, partition: TopicPartition, data: PartitionProduceData) -> PartitionProduceResponse:
        try:
            log = self._services.topics.log(partition)
            records = data.records
            assert records is None or isinstance(records, memoryview)
            header = self._check_batch(log, records)
        except LogbrookError as error:
            return self._failed(partition.partition, error_code(error), str(error))
        except _RefusedError as refused:
            return self._failed(partition.partition, refused.code, str(refused))
        assert records is not None
        response = PartitionProduceResponse(index=partition.partition)
        self._open += 1
        try:
            self._services.appends.append(log, records, lambda ticket: self._done(response, log, ticket))
        except LogbrookError as error:
            self._open -= 1
            return self._failed(partition.partition, error_code(error), str(error))
        self._services.probe.topics[partition.topic].took(header.size, header.count)
        return response

    def _check_batch(self, log: Log, records: memoryview | None) -> BatchHeader:
        """What the log does not check: it takes any number of batches, and knows nothing of replicas."""
        if records is None or len(records) < HEADER_BYTES:
            raise _RefusedError(ErrorCode.INVALID_RECORD, "there is one record batch per partition, not none")
        header = read_header(records)
        if header.magic == 2 and header.size < len(records):
            raise _RefusedError(ErrorCode.INVALID_RECORD, "there is one record batch per partition, not more")
        if header.attributes & TRANSACTIONAL_BIT or self._request.transactional_id is not None:
            self._join_transaction(log.partition, header)
        if self._request.acks == _ALL and log.config.min_insync_replicas > 1:
            raise _RefusedError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"min.insync.replicas is {log.config.min_insync_replicas}, and there is one replica",
            )
        return header

    def _join_transaction(self, partition: TopicPartition, header: BatchHeader) -> None:
        """See to it that the batch belongs to a transaction that is open: nobody would decide on it otherwise.

        Producers of the second protocol version add a partition by writing to it (KIP-890).
        """
        transactional_id = self._request.transactional_id
        if transactional_id is None or not header.is_transactional:
            raise _RefusedError(
                ErrorCode.INVALID_TXN_STATE, "transactional batches need a transactional id, and the other way round"
            )
        transaction = (transactional_id, header.producer_id, header.producer_epoch)
        transactions = self._services.transactions
        try:
            if self._version >= _ADDS_PARTITIONS_SINCE:
                transactions.add_partitions(*transaction, [partition])
            else:
                transactions.coordinator.check_partition(*transaction, partition)
        except TransactionError as error:
            code = error_code(error)
            if code is ErrorCode.INVALID_TXN_STATE and self._version >= _ABORTABLE_SINCE:
                code = ErrorCode.TRANSACTION_ABORTABLE
            raise _RefusedError(_CODES.get(code, code), str(error)) from error

    def _done(self, response: PartitionProduceResponse, log: Log, ticket: Ticket) -> None:
        if ticket.error is not None:
            failed = self._failed(response.index, error_code(ticket.error), str(ticket.error))
            response.error_code, response.error_message = failed.error_code, failed.error_message
            response.base_offset = -1
        else:
            response.base_offset = ticket.base_offset
            response.log_append_time_ms = ticket.log_append_time_ms
            response.log_start_offset = log.log_start_offset
        self._open -= 1
        future = self._future
        if self._open == 0 and future is not None and not future.done():
            try:
                future.set_result(self._response())
            except CloseConnectionError as error:
                future.set_exception(error)

    def _failed(self, index: int, code: ErrorCode, message: str) -> PartitionProduceResponse:
        self._services.probe.errors["Produce", code.name] += 1
        # A stranger may have chosen the message, and have it repeated for many partitions.
        message = message[:_MESSAGE_LENGTH_MAX]
        self._error = PartitionProduceResponse(index=index, error_code=code, error_message=message, base_offset=-1)
        return self._error
