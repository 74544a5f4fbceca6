"""ApiVersions: the served APIs and versions, derived from the list of handlers.

As in Kafka 4, Produce is announced from version 0 although it is served from 3: older librdkafka versions disable
compression if version 0 is missing (KAFKA-18659). The feature `transaction.version` lets producers use version 2 of the
transaction protocol (KIP-890). Its least version is 0, which Java clients before 3.8 do not accept, so it is named as
supported only from version 4 of this API on (KAFKA-17011, KAFKA-17492). A broker of a cluster names the features of the
cluster, too (KIP-584).
"""

from logbrook.core.cluster.features import FeatureRange
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from logbrook.protocol.messages.produce import ProduceRequest
from logbrook.server.api import Api, RequestContext
from logbrook.server.features import TRANSACTION_VERSION, TRANSACTION_VERSION_MAX, TRANSACTION_VERSION_MIN
from logbrook.server.services import Services

_SUPPORTS_MINIMUM_ZERO_SINCE = 4


def handle(services: Services, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    is_known = context.version in API.versions
    cluster = services.cluster_features
    supported = {TRANSACTION_VERSION: FeatureRange(TRANSACTION_VERSION_MIN, TRANSACTION_VERSION_MAX)}
    finalized = {TRANSACTION_VERSION: TRANSACTION_VERSION_MAX}
    if cluster is not None:
        supported |= cluster.supported
        finalized |= cluster.finalized
    least = 0 if context.version >= _SUPPORTS_MINIMUM_ZERO_SINCE else 1
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[
            ApiVersion(api_key=key, min_version=0 if key == ProduceRequest.API_KEY else first, max_version=last)
            for key, (first, last) in services.served_versions.items()
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=levels.first, max_version=levels.last)
            for name, levels in supported.items()
            if levels.first >= least
        ],
        finalized_features_epoch=0 if cluster is None else cluster.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in finalized.items()
        ],
    )


API = Api(ApiVersionsRequest, ApiVersionsResponse, handle)
