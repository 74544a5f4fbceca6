"""InitProducerId: a new id for an idempotent producer. Ids are never given out twice."""

from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from logbrook.server.api import Api, Call
from logbrook.server.errors import error_code
from logbrook.server.services import Services


async def handle(services: Services, request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        # Fatal to the client, which says so, instead of one that it would retry for ever.
        return InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    try:
        producer_id = await services.topics.new_producer_id()
    except LogbrookError as error:
        return InitProducerIdResponse(error_code=error_code(error))
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


API = Api(InitProducerIdRequest, InitProducerIdResponse, handle)
