"""AddOffsetsToTxn: add the `__consumer_offsets` partition of a group to a transaction."""

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.coordinator import ProducerIdentity
from logbrook.model import LogbrookError
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from logbrook.server.api import Api, RequestContext
from logbrook.server.coordinators.responses import producer_fenced_code
from logbrook.server.errors import RequestRefusedError, error_code
from logbrook.server.services import Services


async def handle(
    services: Services, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    try:
        services.authorizer.check(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        services.authorizer.check(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
        if not request.group_id:
            raise RequestRefusedError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        partition = await services.groups.offsets_partition(request.group_id)
        producer = ProducerIdentity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch))
        await services.transactions.add(request.transactional_id, producer, [partition])
    except LogbrookError as error:
        return AddOffsetsToTxnResponse(
            error_code=producer_fenced_code(error_code(error), context.version, fenced_since=2)
        )
    return AddOffsetsToTxnResponse()


API = Api(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, handle)
