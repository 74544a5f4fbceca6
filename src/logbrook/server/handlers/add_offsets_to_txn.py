"""AddOffsetsToTxn: a producer says that its transaction will commit offsets of a group."""

from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from logbrook.server.api import Api, Call
from logbrook.server.refusals import RefusedError, refuse
from logbrook.server.services import Services
from logbrook.server.transaction_answers import producer_fenced_code


async def handle(services: Services, request: AddOffsetsToTxnRequest, call: Call) -> AddOffsetsToTxnResponse:
    try:
        if not request.group_id:
            raise RefusedError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        partition = await services.groups.offsets_partition(request.group_id)
        services.transactions.add_partitions(
            request.transactional_id, request.producer_id, request.producer_epoch, [partition]
        )
    except LogbrookError as error:
        code = refuse(services, request, error).code
        return AddOffsetsToTxnResponse(error_code=producer_fenced_code(code, call.version, fenced_since=2))
    return AddOffsetsToTxnResponse()


API = Api(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, handle)
