"""EndTxn: commit or abort a transaction.

From version 5 on every end bumps the producer epoch, so that a delayed request of an earlier transaction cannot affect
a later one (KIP-890).
"""

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.model import LogbrookError
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from logbrook.server.api import Api, HandlerResult, RequestContext
from logbrook.server.coordinators.responses import producer_fenced_code
from logbrook.server.errors import error_code
from logbrook.server.services import Services

_BUMPS_EPOCH_SINCE = 5


def handle(services: Services, request: EndTxnRequest, context: RequestContext) -> HandlerResult:
    # The transaction is ended even if the client disconnects.
    return services.transactions.own(_end(services, request, context))


API = Api(EndTxnRequest, EndTxnResponse, handle)


async def _end(services: Services, request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    try:
        services.authorizer.check(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        ended = await services.transactions.end(
            request.transactional_id,
            ProducerId(request.producer_id),
            ProducerEpoch(request.producer_epoch),
            is_commit=request.committed,
            bumps_epoch=context.version >= _BUMPS_EPOCH_SINCE,
        )
    except LogbrookError as error:
        return EndTxnResponse(error_code=producer_fenced_code(error_code(error), context.version, fenced_since=2))
    return EndTxnResponse(producer_id=ended.producer_id, producer_epoch=ended.producer_epoch)
