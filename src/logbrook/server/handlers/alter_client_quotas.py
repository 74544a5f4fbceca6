"""AlterClientQuotas: set and remove quotas of users, client ids and addresses (KIP-546).

Each entry is validated on its own, and the valid ones are written together.
"""

from collections.abc import Sequence

from logbrook.core.acls import AclOperation
from logbrook.core.client_quotas import QuotaAlteration, QuotaRecord
from logbrook.model import LogbrookError
from logbrook.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    ResponseEntryData,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import report_error
from logbrook.server.services import Services


async def handle(
    services: Services, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    alterations = [_alteration(entry) for entry in request.entries]
    errors: Sequence[LogbrookError | None] = []

    def decide() -> list[QuotaRecord]:
        nonlocal errors
        services.authorizer.check_cluster(context, AclOperation.ALTER_CONFIGS)
        change = services.security.quotas.alter(alterations)
        errors = change.errors
        return [] if request.validate_only else change.records

    try:
        await services.topics.change_security(decide)
    except LogbrookError as error:
        errors = [error] * len(alterations)
    entries = []
    for entry, failure in zip(request.entries, errors, strict=True):
        result = ResponseEntryData(entity=entry.entity)
        entries.append(result)
        if failure is not None:
            report_error(failure, result)
    return AlterClientQuotasResponse(entries=entries)


API = Api(AlterClientQuotasRequest, AlterClientQuotasResponse, handle)


def _alteration(entry: EntryData) -> QuotaAlteration:
    return QuotaAlteration(
        [(part.entity_type, part.entity_name) for part in entry.entity],
        [(operation.key, None if operation.remove else operation.value) for operation in entry.ops],
    )
