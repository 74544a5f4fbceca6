"""UpdateFeatures: change the level of a feature (KIP-584).

The level of `transaction.version` is fixed, so an update to the current level succeeds and any other is refused. Levels
of a cluster's own features are raised if all its nodes support them. As in Kafka, either all updates of a request
succeed or none does, so the response has one error.
"""

from logbrook.core.acls import AclOperation
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import RequestRefusedError, errors_in
from logbrook.server.features import TRANSACTION_VERSION, TRANSACTION_VERSION_MAX, TRANSACTION_VERSION_MIN
from logbrook.server.services import Services

_UPGRADE = 1


async def handle(services: Services, request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    response = UpdateFeaturesResponse()
    with errors_in(response):
        services.authorizer.check_cluster(context, AclOperation.ALTER)
        levels: dict[str, int] = {}
        for update in request.feature_updates:
            if services.cluster_features is not None and update.feature in services.cluster_features.supported:
                levels[update.feature] = update.max_version_level
            else:
                _check(update, is_downgrade_allowed=update.allow_downgrade or update.upgrade_type > _UPGRADE)
        if services.cluster_features is not None and levels:
            await services.cluster_features.upgrade(levels, only_check=request.validate_only)
        response.results = [UpdatableFeatureResult(feature=update.feature) for update in request.feature_updates]
    return response


API = Api(UpdateFeaturesRequest, UpdateFeaturesResponse, handle)


def _check(update: FeatureUpdateKey, *, is_downgrade_allowed: bool) -> None:
    """Raises RequestRefusedError unless the update is to the current level."""
    level = update.max_version_level
    if update.feature != TRANSACTION_VERSION:
        raise RequestRefusedError(ErrorCode.INVALID_UPDATE_VERSION, f"there is no feature {update.feature!r}")
    if not TRANSACTION_VERSION_MIN <= level <= TRANSACTION_VERSION_MAX:
        raise RequestRefusedError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{TRANSACTION_VERSION} is from {TRANSACTION_VERSION_MIN} to {TRANSACTION_VERSION_MAX}, not {level}",
        )
    if level == TRANSACTION_VERSION_MAX:
        return
    if not is_downgrade_allowed:
        raise RequestRefusedError(
            ErrorCode.INVALID_UPDATE_VERSION, f"version {level} of {TRANSACTION_VERSION} would be a downgrade"
        )
    raise RequestRefusedError(
        ErrorCode.FEATURE_UPDATE_FAILED, f"{TRANSACTION_VERSION} stays at {TRANSACTION_VERSION_MAX}"
    )
