"""ListConfigResources."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from tests.unit.server.handlers.kit import BROKER, NODE_ID, TOPIC, Peer

CLIENT_METRICS = 16


def resources(peer: Peer, *types: int, version: int = 1) -> list[tuple[int, str]]:
    response = peer.ask(ListConfigResourcesRequest(resource_types=types), ListConfigResourcesResponse, version)
    assert response.error_code == ErrorCode.NONE
    return [(resource.resource_type, resource.resource_name) for resource in response.config_resources]


def test_the_broker_and_the_topics_have_settings(peer: Peer) -> None:
    topic = peer.create()
    assert {(BROKER, str(NODE_ID)), (TOPIC, topic)} <= set(resources(peer))
    assert resources(peer, BROKER) == [(BROKER, str(NODE_ID))]
    assert (TOPIC, topic) in resources(peer, TOPIC)
    assert {resource_type for resource_type, _ in resources(peer, TOPIC)} == {TOPIC}


def test_there_are_no_subscriptions_to_client_metrics(peer: Peer) -> None:
    """KIP-714: version 0 lists nothing else."""
    assert resources(peer, version=0) == []
    assert resources(peer, CLIENT_METRICS) == []


def test_an_unknown_type_is_refused(peer: Peer) -> None:
    request = ListConfigResourcesRequest(resource_types=[TOPIC, 99])
    assert peer.ask(request, ListConfigResourcesResponse).error_code == ErrorCode.UNSUPPORTED_VERSION
