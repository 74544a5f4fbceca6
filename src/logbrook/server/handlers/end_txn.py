"""EndTxn: a transaction is committed or aborted, in all its partitions, or not at all.

From version 5 on every end gives the producer a new epoch, so that a request of an earlier transaction that comes late
is not taken for one of a later (KIP-890).
"""

from logbrook.model import LogbrookError
from logbrook.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from logbrook.server.api import Api, Call
from logbrook.server.refusals import refuse
from logbrook.server.services import Services
from logbrook.server.transaction_answers import producer_fenced_code

_NEW_EPOCH_SINCE = 5


async def handle(services: Services, request: EndTxnRequest, call: Call) -> EndTxnResponse:
    try:
        ended = await services.transactions.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            is_commit=request.committed,
            bumps_epoch=call.version >= _NEW_EPOCH_SINCE,
        )
    except LogbrookError as error:
        code = refuse(services, request, error).code
        return EndTxnResponse(error_code=producer_fenced_code(code, call.version, fenced_since=2))
    return EndTxnResponse(producer_id=ended.producer_id, producer_epoch=ended.producer_epoch)


API = Api(EndTxnRequest, EndTxnResponse, handle)
