"""Administration of transactions: the transactional ids that the coordinators hold, and aborting what is open."""

from logbrook.client.admin_results import TransactionInfo
from logbrook.client.client import Client
from logbrook.client.coordinators import CoordinatorKind, Coordinators
from logbrook.client.errors import BrokerError, check_code
from logbrook.client.transactional import TransactionalProducer
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId, ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from logbrook.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

# States of a transactional id, as Kafka names them.
ONGOING = "Ongoing"
_UNFINISHED = frozenset({ONGOING, "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


class TransactionAdmin:
    """Every call may raise ClientError. An id that does not exist is TRANSACTIONAL_ID_NOT_FOUND."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._coordinators = Coordinators(client)

    def all(self) -> list[TransactionInfo]:
        """Return every transactional id that the coordinators hold, by name."""
        transactions = []
        for broker in self._client.metadata([]).brokers:
            connection = self._client.connection((broker.host, broker.port))
            listed = connection.request(ListTransactionsRequest(), ListTransactionsResponse)
            check_code(listed.error_code, f"listing the transactions of broker {broker.node_id}")
            names = [state.transactional_id for state in listed.transaction_states]
            request = DescribeTransactionsRequest(transactional_ids=names)
            described = connection.request(request, DescribeTransactionsResponse).transaction_states if names else ()
            # An id that has expired since it was listed has an error code.
            transactions += [
                _transaction(state, BrokerId(broker.node_id)) for state in described if not state.error_code
            ]
        return sorted(transactions, key=lambda transaction: transaction.transactional_id)

    def describe(self, transactional_id: str) -> TransactionInfo:
        """Return the state of one id."""
        operation = f"looking up transactional id {transactional_id}"
        with self._coordinators.connection(CoordinatorKind.TRANSACTION, transactional_id) as connection:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            (state,) = connection.request(request, DescribeTransactionsResponse).transaction_states
            check_code(state.error_code, operation)
            address = connection.host, connection.port
        coordinator = next(
            (broker.node_id for broker in self._client.metadata([]).brokers if (broker.host, broker.port) == address),
            -1,
        )
        return _transaction(state, BrokerId(coordinator))

    def abort(self, transactional_id: str) -> TransactionInfo:
        """Abort the open transaction of an id, and return it as it was. Its producer is fenced.

        The id is taken over, as by a new producer with the same id, and keeps its timeout. INVALID_TXN_STATE if no
        transaction is open.
        """
        transaction = self.describe(transactional_id)
        if transaction.state != ONGOING:
            reason = f"its state is {transaction.state}"
            raise BrokerError(ErrorCode.INVALID_TXN_STATE, f"aborting the transaction of {transactional_id}", reason)
        TransactionalProducer(self._client, transactional_id, transaction_timeout_ms=transaction.timeout_ms).close()
        return transaction


def is_unfinished(transaction: TransactionInfo) -> bool:
    """Return True if a transaction is open or being completed."""
    return transaction.state in _UNFINISHED


def _transaction(state: TransactionState, coordinator_id: BrokerId) -> TransactionInfo:
    return TransactionInfo(
        state.transactional_id,
        state.transaction_state,
        ProducerId(state.producer_id),
        ProducerEpoch(state.producer_epoch),
        coordinator_id,
        state.transaction_timeout_ms,
        None if state.transaction_start_time_ms < 0 else state.transaction_start_time_ms,
        tuple(TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions),
    )
