"""ListTransactions: the transactional ids that pass the filters (KIP-664, KIP-994, KIP-1152)."""

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.transactions.transaction import TransactionState
from logbrook.model import LogbrookError
from logbrook.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from logbrook.protocol.messages.list_transactions import TransactionState as ListedTransaction
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import error_code
from logbrook.server.services import Services


def handle(services: Services, request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    known = {state.value for state in TransactionState}
    wanted = set(request.state_filters)
    unknown = sorted(wanted - known)
    if wanted and not wanted & known:
        # Unknown states only: an empty filter would list everything.
        return ListTransactionsResponse(unknown_state_filters=unknown)
    try:
        transactions = services.transactions.list_transactions(
            states=wanted & known,
            producer_ids=request.producer_id_filters,
            open_longer_than_ms=request.duration_filter,
            pattern=request.transactional_id_pattern,
        )
    except LogbrookError as error:
        return ListTransactionsResponse(error_code=error_code(error))
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            ListedTransaction(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state,
            )
            for transaction in transactions
            if services.authorizer.allows(
                context,
                AclOperation.DESCRIBE,
                ResourceType.TRANSACTIONAL_ID,
                transaction.transactional_id,
                is_audited=False,
            )
        ],
    )


API = Api(ListTransactionsRequest, ListTransactionsResponse, handle)
