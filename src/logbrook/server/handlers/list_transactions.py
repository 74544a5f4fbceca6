"""ListTransactions: the transactional ids, all or those that a filter leaves (KIP-664)."""

from logbrook.core.transactions import TransactionState
from logbrook.model import LogbrookError
from logbrook.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from logbrook.protocol.messages.list_transactions import TransactionState as ListedTransaction
from logbrook.server.api import Api, Call
from logbrook.server.refusals import refuse
from logbrook.server.services import Services


def handle(services: Services, request: ListTransactionsRequest, call: Call) -> ListTransactionsResponse:
    known = {state.value for state in TransactionState}
    wanted = set(request.state_filters)
    unknown = sorted(wanted - known)
    if wanted and not wanted & known:
        # Asked for nothing that there is, which is not the same as asking for everything.
        return ListTransactionsResponse(unknown_state_filters=unknown)
    transactions = services.transactions
    try:
        found = transactions.coordinator.list_transactions(
            states=wanted & known,
            producer_ids=request.producer_id_filters,
            open_longer_than_ms=request.duration_filter,
            pattern=request.transactional_id_pattern,
            now_ms=transactions.now_ms,
        )
    except LogbrookError as error:
        return ListTransactionsResponse(error_code=refuse(services, request, error).code)
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            ListedTransaction(
                transactional_id=one.transactional_id, producer_id=one.producer_id, transaction_state=one.state
            )
            for one in found
        ],
    )


API = Api(ListTransactionsRequest, ListTransactionsResponse, handle)
