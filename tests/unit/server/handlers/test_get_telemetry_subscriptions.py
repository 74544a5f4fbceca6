"""GetTelemetrySubscriptions: nothing is subscribed to."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from logbrook.protocol.schema import ZERO_UUID
from tests.unit.server.handlers.kit import Peer


def test_a_client_gets_an_id_and_no_metrics_to_push(peer: Peer) -> None:
    first = peer.ask(GetTelemetrySubscriptionsRequest(), GetTelemetrySubscriptionsResponse)
    assert (first.error_code, first.requested_metrics) == (ErrorCode.NONE, [])
    assert first.client_instance_id != ZERO_UUID
    assert first.push_interval_ms > 0
    again = GetTelemetrySubscriptionsRequest(client_instance_id=first.client_instance_id)
    assert peer.ask(again, GetTelemetrySubscriptionsResponse).client_instance_id == first.client_instance_id


def test_the_api_is_not_advertised(peer: Peer) -> None:
    """The same as Kafka without a metrics receiver: clients that know the API would send it every five minutes."""
    apis = peer.ask(ApiVersionsRequest(), ApiVersionsResponse).api_keys
    assert GetTelemetrySubscriptionsRequest.API_KEY not in {api.api_key for api in apis}
