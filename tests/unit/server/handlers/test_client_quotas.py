"""DescribeClientQuotas and AlterClientQuotas, and the throttle times in the responses of clients above a quota."""

from collections.abc import Iterator

import pytest

from logbrook.model.security import SecurityProtocol
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
    ResponseEntryData,
)
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from logbrook.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from logbrook.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from logbrook.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from logbrook.protocol.messages.metadata import MetadataRequest, MetadataResponse
from logbrook.protocol.messages.produce import ProduceResponse
from logbrook.server.probe import QuotaKind
from logbrook.server.session import ConnectionSession
from logbrook.testing.clock import FakeClock
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.kit import FETCH_VERSION, Peer, distinct_versions, fresh
from tests.unit.server.shell_kit import PRODUCE_VERSION, batch_of, produce_request

EXACT, DEFAULT_NAME, ANY_NAME = range(3)
Entity = tuple[tuple[str, str | None], ...]
PEER: Entity = (("client-id", "peer"),)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def limited(clock: FakeClock) -> Iterator[HandlerShell]:
    """A broker of its own, with two windows of a second, so that a client may be ahead by the quota of one second."""
    with HandlerShell({"network": {"quota_windows": 2}}, clock=clock) as broker:
        yield broker


@pytest.fixture
def peer(limited: HandlerShell) -> Iterator[Peer]:
    with Peer(limited) as peer:
        yield peer


def altered(
    peer: Peer, entity: Entity, *changes: tuple[str, float | None], version: int | None = None, only_check: bool = False
) -> ResponseEntryData:
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=only_check)
    (result,) = peer.ask(request, AlterClientQuotasResponse, version).entries
    assert [(part.entity_type, part.entity_name) for part in result.entity] == list(entity)
    return result


def described(
    peer: Peer, *filters: tuple[str, int, str | None], is_strict: bool = False, version: int | None = None
) -> dict[Entity, dict[str, float]]:
    components = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in filters]
    request = DescribeClientQuotasRequest(components=components, strict=is_strict)
    response = peer.ask(request, DescribeClientQuotasResponse, version)
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    assert response.entries is not None
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries
    }


def limit(peer: Peer, key: str, rate: float, entity: Entity = PEER) -> None:
    result = altered(peer, entity, (key, rate))
    assert result.error_code == ErrorCode.NONE, result.error_message


@distinct_versions(AlterClientQuotasRequest)
def test_quotas_are_set_described_and_removed(peer: Peer, version: int) -> None:
    user: Entity = (("user", "alice"), ("client-id", None))
    set_both = altered(peer, user, ("producer_byte_rate", 1e6), ("request_percentage", 12.5), version=version)
    assert (set_both.error_code, set_both.error_message) == (ErrorCode.NONE, None)
    limit(peer, "connection_creation_rate", 5.0, (("ip", None),))
    assert described(peer, version=version) == {
        user: {"producer_byte_rate": 1e6, "request_percentage": 12.5},
        (("ip", None),): {"connection_creation_rate": 5.0},
    }
    assert list(described(peer, ("user", EXACT, "alice"))) == [user]
    assert described(peer, ("user", EXACT, "alice"), is_strict=True) == {}
    assert list(described(peer, ("user", ANY_NAME, None), ("client-id", DEFAULT_NAME, None), is_strict=True)) == [user]
    altered(peer, user, ("producer_byte_rate", None), version=version)
    assert described(peer, ("user", ANY_NAME, None)) == {user: {"request_percentage": 12.5}}
    altered(peer, user, ("request_percentage", None), version=version)
    assert described(peer, ("user", ANY_NAME, None)) == {}


def test_a_validated_change_is_not_made(peer: Peer) -> None:
    assert altered(peer, PEER, ("producer_byte_rate", 1.0), only_check=True).error_code == ErrorCode.NONE
    assert altered(peer, PEER, ("producer_byte_rate", -1.0), only_check=True).error_code == ErrorCode.INVALID_REQUEST
    assert described(peer) == {}


def test_quotas_survive_a_restart(clock: FakeClock) -> None:
    with HandlerShell(clock=clock) as shell, Peer(shell) as peer:
        limit(peer, "producer_byte_rate", 1e6)
        files = shell.files
    with HandlerShell(clock=clock, files=files) as shell, Peer(shell) as peer:
        assert described(peer) == {PEER: {"producer_byte_rate": 1e6}}
        assert shell.services.security.quotas.has_client_quotas


@pytest.mark.parametrize(
    ("entity", "key", "reason"),
    [
        ((), "producer_byte_rate", "needs a user"),
        ((("team", "a"),), "producer_byte_rate", "type 'team'"),
        ((("user", ""),), "producer_byte_rate", "may not be empty"),
        ((("user", "a"),), "bytes", "not a quota of"),
        ((("ip", "nowhere"),), "connection_creation_rate", "not an IP address"),
    ],
)
def test_an_invalid_change_is_refused(peer: Peer, entity: Entity, key: str, reason: str) -> None:
    result = altered(peer, entity, (key, 1.0))
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert reason in (result.error_message or "")


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([ComponentData(entity_type="", match_type=ANY_NAME, match=None)], ErrorCode.INVALID_REQUEST),
        ([ComponentData(entity_type="team", match_type=ANY_NAME, match=None)], ErrorCode.UNSUPPORTED_VERSION),
        ([ComponentData(entity_type="user", match_type=3, match=None)], ErrorCode.INVALID_REQUEST),
        ([ComponentData(entity_type="user", match_type=EXACT, match=None)], ErrorCode.INVALID_REQUEST),
        ([ComponentData(entity_type="user", match_type=DEFAULT_NAME, match="a")], ErrorCode.INVALID_REQUEST),
        ([ComponentData(entity_type="ip", match_type=ANY_NAME, match=None)] * 2, ErrorCode.INVALID_REQUEST),
        (
            [ComponentData(entity_type=kind, match_type=ANY_NAME, match=None) for kind in ("ip", "user")],
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_an_invalid_filter_is_refused(peer: Peer, components: list[ComponentData], code: ErrorCode) -> None:
    response = peer.ask(DescribeClientQuotasRequest(components=components), DescribeClientQuotasResponse)
    assert (response.error_code, response.entries) == (code, None)
    assert response.error_message


def test_a_producer_above_its_quota_is_told_how_long_to_wait(
    limited: HandlerShell, peer: Peer, clock: FakeClock
) -> None:
    topic = peer.create()
    limit(peer, "producer_byte_rate", 10_000.0)

    def throttle_ms(size: int) -> int:
        request = produce_request(topic, batch_of(size))
        return peer.ask(request, ProduceResponse, PRODUCE_VERSION).throttle_time_ms

    assert throttle_ms(9_000) == 0
    assert throttle_ms(10_000) == pytest.approx(920, abs=50)
    clock.advance(1_000)
    assert throttle_ms(100) == pytest.approx(0, abs=50)
    probe = limited.services.probe
    assert probe.throttled[QuotaKind.PRODUCE] in (1, 2)
    assert probe.throttled_s[QuotaKind.PRODUCE] == pytest.approx(0.9, abs=0.1)


def test_a_fetch_above_the_quota_gets_no_records_until_the_time_has_passed(peer: Peer, clock: FakeClock) -> None:
    topic = peer.create()
    for _ in range(3):
        peer.produce(topic, b"v" * 4_000)
    limit(peer, "consumer_byte_rate", 5_000.0)

    def fetch(offset: int, session: tuple[int, int], topics: bool = True) -> FetchResponse:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
        request = FetchRequest(
            replica_id=-1,
            max_bytes=1 << 20,
            session_id=session[0],
            session_epoch=session[1],
            topics=[FetchTopic(topic=topic, partitions=[wanted])] if topics else [],
        )
        return peer.ask(request, FetchResponse, FETCH_VERSION)

    first = fetch(0, (0, 0))
    assert (first.throttle_time_ms, len(first.responses)) == (0, 1)
    throttled = fetch(1, (first.session_id, 1))
    assert (throttled.session_id, throttled.error_code, list(throttled.responses)) == (first.session_id, 0, [])
    assert throttled.throttle_time_ms == pytest.approx(640, abs=60)
    clock.advance(throttled.throttle_time_ms)
    again = fetch(1, (first.session_id, 2), topics=False)
    assert (again.throttle_time_ms, len(again.responses)) == (0, 1)
    # A session does not begin with a response without records: the client would take it for complete.
    full = fetch(2, (0, 0))
    assert (full.session_id, list(full.responses)) == (0, [])
    assert full.throttle_time_ms > 0


def test_a_fetch_asks_for_no_more_than_the_quota_permits_at_once(peer: Peer) -> None:
    topic = peer.create()
    for _ in range(3):
        peer.produce(topic, b"v" * 4_000)
    limit(peer, "consumer_byte_rate", 5_000.0)
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=-1,
        max_bytes=1 << 20,
        min_bytes=1 << 20,
        max_wait_ms=60_000,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    response = peer.ask(request, FetchResponse, FETCH_VERSION)
    assert response.throttle_time_ms == 0
    records = response.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert len(records) < 5_000


def test_request_time_is_counted_and_the_throttle_time_is_at_most_a_window(
    limited: HandlerShell, peer: Peer, clock: FakeClock
) -> None:
    limit(peer, "request_percentage", 10.0)
    ask = MetadataRequest(topics=[])
    assert peer.ask(ask, MetadataResponse).throttle_time_ms == 0
    slow_view = limited.services.view

    class SlowView:
        """Takes three seconds for what the handler asks first."""

        def __getattr__(self, name: str) -> object:
            clock.advance(3_000)
            return getattr(slow_view, name)

    limited.services.view = SlowView()  # type: ignore[assignment]
    assert peer.ask(ask, MetadataResponse).throttle_time_ms == pytest.approx(1_000, abs=5)
    limited.services.view = slow_view
    assert limited.services.probe.throttled[QuotaKind.REQUEST] == 1


def test_partitions_above_the_quota_are_refused(peer: Peer, clock: FakeClock) -> None:
    limit(peer, "controller_mutation_rate", 1.0)

    def create(count: int) -> tuple[int, int]:
        topic = CreatableTopic(name=fresh(), num_partitions=count, replication_factor=1)
        response = peer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse)
        return response.topics[0].error_code, response.throttle_time_ms

    # The bucket has the partitions of two seconds. The first request may exceed it, the next has to wait.
    assert create(5) == (ErrorCode.NONE, 0)
    assert create(1) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 3_000)
    clock.advance(3_000)
    assert create(1) == (ErrorCode.NONE, 0)
    topic = CreatePartitionsTopic(name="any", count=2, assignments=None)
    refused = peer.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=10_000), CreatePartitionsResponse)
    assert refused.results[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_additional_and_deleted_partitions_count_too(peer: Peer, clock: FakeClock) -> None:
    topic = peer.create()
    limit(peer, "controller_mutation_rate", 1.0)
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=4, assignments=None)], timeout_ms=10_000
    )
    added = peer.ask(more, CreatePartitionsResponse)
    assert (added.results[0].error_code, added.throttle_time_ms) == (ErrorCode.NONE, 0)
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000)
    refused = peer.ask(delete, DeleteTopicsResponse)
    assert (refused.responses[0].error_code, refused.throttle_time_ms) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 1_000)
    clock.advance(1_000)
    assert peer.ask(delete, DeleteTopicsResponse).responses[0].error_code == ErrorCode.NONE


def test_in_old_versions_partitions_above_the_quota_delay_the_client(peer: Peer) -> None:
    limit(peer, "controller_mutation_rate", 1.0)
    topic = CreatableTopic(name=fresh(), num_partitions=5, replication_factor=1)
    created = peer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse, 5)
    assert (created.topics[0].error_code, created.throttle_time_ms) == (ErrorCode.NONE, 3_000)


def test_a_topic_that_is_only_checked_is_not_counted(peer: Peer) -> None:
    limit(peer, "controller_mutation_rate", 1.0)
    topic = CreatableTopic(name=fresh(), num_partitions=100, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=True)
    for _ in range(2):
        assert peer.ask(request, CreateTopicsResponse).topics[0].error_code == ErrorCode.NONE


def test_a_quota_of_another_client_has_no_effect(peer: Peer) -> None:
    topic = peer.create()
    limit(peer, "producer_byte_rate", 1.0, (("client-id", "other"),))
    response = peer.ask(produce_request(topic, batch_of(1_000)), ProduceResponse, PRODUCE_VERSION)
    assert response.throttle_time_ms == 0


def test_requests_before_the_authentication_are_not_counted(limited: HandlerShell, peer: Peer) -> None:
    limit(peer, "request_percentage", 1e-9, (("user", None),))
    session = ConnectionSession("127.0.0.1", protocol=SecurityProtocol.SASL_PLAINTEXT)
    client = limited.client(session=session)
    for _ in range(3):
        assert client.request(ApiVersionsRequest(), ApiVersionsResponse).throttle_time_ms == 0
    assert session.muted_until_s == 0.0
