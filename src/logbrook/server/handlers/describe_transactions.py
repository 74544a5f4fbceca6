"""DescribeTransactions: what the coordinator knows of transactional ids (KIP-664)."""

from itertools import groupby
from operator import attrgetter

from logbrook.core.transactions import TransactionDescription
from logbrook.model import LogbrookError
from logbrook.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from logbrook.server.api import Api, Call
from logbrook.server.refusals import refuse
from logbrook.server.services import Services


def handle(services: Services, request: DescribeTransactionsRequest, call: Call) -> DescribeTransactionsResponse:
    states = []
    for transactional_id in dict.fromkeys(request.transactional_ids):
        try:
            states.append(_state(services.transactions.coordinator.describe(transactional_id)))
        except LogbrookError as error:
            code = refuse(services, request, error).code
            states.append(TransactionState(transactional_id=transactional_id, error_code=code))
    return DescribeTransactionsResponse(transaction_states=states)


API = Api(DescribeTransactionsRequest, DescribeTransactionsResponse, handle)


def _state(found: TransactionDescription) -> TransactionState:
    by_topic = groupby(sorted(found.partitions), attrgetter("topic"))
    return TransactionState(
        transactional_id=found.transactional_id,
        transaction_state=found.state,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=[one.partition for one in partitions]) for topic, partitions in by_topic
        ],
    )
