"""DescribeClientQuotas and AlterClientQuotas on a broker without quotas."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from logbrook.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tests.unit.server.handlers.kit import Peer, distinct_versions

EXACT, DEFAULT_NAME, ANY_NAME = range(3)


@distinct_versions(DescribeClientQuotasRequest)
def test_no_client_has_a_quota(peer: Peer, version: int) -> None:
    components = [
        ComponentData(entity_type="user", match_type=ANY_NAME, match=None),
        ComponentData(entity_type="client-id", match_type=EXACT, match="peer"),
    ]
    for filters in ([], components):
        request = DescribeClientQuotasRequest(components=filters)
        response = peer.ask(request, DescribeClientQuotasResponse, version)
        assert (response.error_code, response.entries) == (ErrorCode.NONE, [])


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([ComponentData(entity_type="", match_type=ANY_NAME, match=None)], ErrorCode.INVALID_REQUEST),
        ([ComponentData(entity_type="team", match_type=ANY_NAME, match=None)], ErrorCode.UNSUPPORTED_VERSION),
        ([ComponentData(entity_type="user", match_type=3, match=None)], ErrorCode.INVALID_REQUEST),
        ([ComponentData(entity_type="user", match_type=EXACT, match=None)], ErrorCode.INVALID_REQUEST),
        ([ComponentData(entity_type="user", match_type=DEFAULT_NAME, match="a")], ErrorCode.INVALID_REQUEST),
        ([ComponentData(entity_type="ip", match_type=ANY_NAME, match=None)] * 2, ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_invalid_filter_is_refused(peer: Peer, components: list[ComponentData], code: ErrorCode) -> None:
    response = peer.ask(DescribeClientQuotasRequest(components=components), DescribeClientQuotasResponse)
    assert (response.error_code, response.entries) == (code, None)
    assert response.error_message


@distinct_versions(AlterClientQuotasRequest)
def test_quotas_can_neither_be_set_nor_removed(peer: Peer, version: int) -> None:
    entity = [EntityData(entity_type="user", entity_name=None)]
    set_rate = OpData(key="producer_byte_rate", value=1000.0)
    remove_rate = OpData(key="consumer_byte_rate", remove=True)
    entries = [EntryData(entity=entity, ops=[remove_rate, set_rate]), EntryData(entity=entity, ops=[remove_rate])]
    refused, removed = peer.ask(AlterClientQuotasRequest(entries=entries), AlterClientQuotasResponse, version).entries
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "producer_byte_rate" in (refused.error_message or "")
    assert (removed.error_code, removed.error_message) == (ErrorCode.NONE, None)
    assert [(part.entity_type, part.entity_name) for part in removed.entity] == [("user", None)]
