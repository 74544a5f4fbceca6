"""DescribeTransactions: state, producer and partitions of transactional ids (KIP-664)."""

from itertools import groupby
from operator import attrgetter

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.transactions.transaction import Transaction
from logbrook.model import LogbrookError
from logbrook.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import error_code
from logbrook.server.services import Services


def handle(
    services: Services, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    states = []
    for transactional_id in dict.fromkeys(request.transactional_ids):
        try:
            services.authorizer.check(context, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
            states.append(_state(services, services.transactions.describe(transactional_id), context))
        except LogbrookError as error:
            code = error_code(error)
            states.append(TransactionState(transactional_id=transactional_id, error_code=code))
    return DescribeTransactionsResponse(transaction_states=states)


API = Api(DescribeTransactionsRequest, DescribeTransactionsResponse, handle)


def _state(services: Services, transaction: Transaction, context: RequestContext) -> TransactionState:
    """Describe a transaction, without the topics that the client may not describe."""
    by_topic = groupby(sorted(transaction.partitions), attrgetter("topic"))
    return TransactionState(
        transactional_id=transaction.transactional_id,
        transaction_state=transaction.state,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=[partition.partition for partition in partitions])
            for topic, partitions in by_topic
            if services.authorizer.allows(context, AclOperation.DESCRIBE, ResourceType.TOPIC, topic, is_audited=False)
        ],
    )
