"""ApiVersions: what is served, straight from the list of handlers.

Kafka 4 says that it serves Produce from version 0 although it serves it from 3, because older librdkafka takes the
absence of version 0 for the absence of compression (KAFKA-18659). So do we. The feature `transaction.version` tells
producers that they may use the second version of the protocol of transactions (KIP-890).
"""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from logbrook.protocol.messages.produce import ProduceRequest
from logbrook.server.api import Api, Call
from logbrook.server.services import Services

_TRANSACTIONS = "transaction.version"
_TRANSACTIONS_MAX = 2


def handle(services: Services, request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    is_known = call.version in API.versions
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[
            ApiVersion(api_key=key, min_version=0 if key == ProduceRequest.API_KEY else first, max_version=last)
            for key, (first, last) in services.served_versions.items()
        ],
        supported_features=[SupportedFeatureKey(name=_TRANSACTIONS, min_version=0, max_version=_TRANSACTIONS_MAX)],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(
                name=_TRANSACTIONS, min_version_level=_TRANSACTIONS_MAX, max_version_level=_TRANSACTIONS_MAX
            )
        ],
    )


API = Api(ApiVersionsRequest, ApiVersionsResponse, handle)
