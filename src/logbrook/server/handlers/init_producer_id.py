"""InitProducerId: assign a producer id, or a new producer epoch to a transactional id.

Producer ids are never assigned twice. Earlier producers of the transactional id are fenced, and their open transaction
is aborted.
"""

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.transactions.messages import InitRequest
from logbrook.model import LogbrookError
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from logbrook.server.api import Api, RequestContext
from logbrook.server.coordinators.responses import producer_fenced_code
from logbrook.server.errors import RequestRefusedError, error_code
from logbrook.server.services import Services

_NONE = -1


async def handle(services: Services, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    try:
        _authorize(services, request, context)
        if request.transactional_id is None:
            return InitProducerIdResponse(producer_id=await services.topics.new_producer_id(), producer_epoch=0)
        if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
            raise RequestRefusedError(
                ErrorCode.INVALID_REQUEST, "producer id and epoch must both be set, or both be -1"
            )
        if request.enable2_pc or request.keep_prepared_txn:
            raise RequestRefusedError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "two-phase commit (KIP-939) is not supported"
            )
        producer = await services.transactions.init_producer(
            InitRequest(
                request.transactional_id,
                request.transaction_timeout_ms,
                ProducerId(request.producer_id),
                ProducerEpoch(request.producer_epoch),
            )
        )
    except LogbrookError as error:
        return InitProducerIdResponse(
            error_code=producer_fenced_code(error_code(error), context.version, fenced_since=4), producer_epoch=_NONE
        )
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)


API = Api(InitProducerIdRequest, InitProducerIdResponse, handle)


def _authorize(services: Services, request: InitProducerIdRequest, context: RequestContext) -> None:
    """Raises AuthorizationFailedError. A client that may write to any topic may be idempotent (KIP-679)."""
    authorizer = services.authorizer
    if request.transactional_id is not None:
        authorizer.check(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    elif not authorizer.allows_any(context, AclOperation.WRITE, ResourceType.TOPIC):
        authorizer.check_cluster(context, AclOperation.IDEMPOTENT_WRITE)
