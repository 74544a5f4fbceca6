"""AlterClientQuotas: quotas are not supported, so setting one is refused. Removing one succeeds: there is none."""

from logbrook.core.acls import AclOperation
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    ResponseEntryData,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import error_reply
from logbrook.server.services import Services


def handle(services: Services, request: AlterClientQuotasRequest, context: RequestContext) -> AlterClientQuotasResponse:
    refusal = services.authorizer.cluster_refusal(context, AclOperation.ALTER_CONFIGS)
    if refusal is not None:
        code, message = error_reply(refusal)
        refused = [
            ResponseEntryData(error_code=code, error_message=message, entity=entry.entity) for entry in request.entries
        ]
        return AlterClientQuotasResponse(entries=refused)
    return AlterClientQuotasResponse(entries=[_alter(entry) for entry in request.entries])


API = Api(AlterClientQuotasRequest, AlterClientQuotasResponse, handle)


def _alter(entry: EntryData) -> ResponseEntryData:
    keys = [operation.key for operation in entry.ops if not operation.remove]
    if not keys:
        return ResponseEntryData(entity=entry.entity)
    return ResponseEntryData(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message=f"{keys[0][:100]} cannot be set: client quotas are not supported",
        entity=entry.entity,
    )
