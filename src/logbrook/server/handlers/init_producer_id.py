"""InitProducerId: an id for an idempotent producer, or the producer that a transactional id stands for from now on.

Ids are never given out twice. Whoever used the transactional id before is fenced, and what it left open is aborted.
"""

from logbrook.core.transactions import InitRequest
from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from logbrook.server.api import Api, Call
from logbrook.server.refusals import RefusedError, refuse
from logbrook.server.services import Services
from logbrook.server.transaction_answers import producer_fenced_code

_NONE = -1


async def handle(services: Services, request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse:
    try:
        if request.transactional_id is None:
            return InitProducerIdResponse(producer_id=await services.topics.new_producer_id(), producer_epoch=0)
        if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
            raise RefusedError(ErrorCode.INVALID_REQUEST, "a producer that goes on names its id and its epoch, or none")
        if request.enable2_pc or request.keep_prepared_txn:
            raise RefusedError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions that others prepare are not supported"
            )
        found = await services.transactions.init_producer(
            InitRequest(
                request.transactional_id,
                request.transaction_timeout_ms,
                request.producer_id,
                request.producer_epoch,
            )
        )
    except LogbrookError as error:
        code = refuse(services, request, error).code
        return InitProducerIdResponse(error_code=producer_fenced_code(code, call.version, fenced_since=4))
    return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.producer_epoch)


API = Api(InitProducerIdRequest, InitProducerIdResponse, handle)
