"""GetTelemetrySubscriptions: the metrics that the broker wants from a client (KIP-714): none.

As in Kafka without a receiver of metrics, the API is not in the ApiVersions response, so that clients do not ask and
collect nothing. A client that asks nevertheless gets an empty subscription, and has nothing to push.
"""

from logbrook.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from logbrook.protocol.schema import ZERO_UUID
from logbrook.server.api import Api, RequestContext
from logbrook.server.services import Services

# Kafka's default: the client asks again after this time.
_PUSH_INTERVAL_MS = 5 * 60 * 1000


def handle(
    services: Services, request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    is_new = request.client_instance_id == ZERO_UUID
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=services.random.token(16) if is_new else request.client_instance_id,
        push_interval_ms=_PUSH_INTERVAL_MS,
        delta_temporality=True,
        requested_metrics=[],
    )


API = Api(GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse, handle, is_advertised=False)
