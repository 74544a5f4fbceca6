"""The audit log of a broker: what is recorded, where, and how much of it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.client.errors import BrokerError
from logbrook.model.identifiers import Offset
from logbrook.model.security import USER, Principal, SaslMechanism
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from logbrook.records.reader import iter_records
from logbrook.server.api import RequestContext
from logbrook.server.security.audit import FILE, AuditLog
from logbrook.server.session import ConnectionSession
from logbrook.testing.broker import Broker
from logbrook.testing.clock import FakeClock


class Lines:
    """A sink in memory."""

    def __init__(self) -> None:
        self.dropped = 0
        self.events: list[dict[str, Any]] = []

    def write(self, line: bytes) -> None:
        self.events.append(json.loads(line))

    def reopen(self) -> None:
        pass


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def audit(clock: FakeClock) -> AuditLog:
    audit = AuditLog(clock)
    audit.sinks[FILE] = Lines()
    return audit


@pytest.fixture
def events(audit: AuditLog) -> list[dict[str, Any]]:
    sink = audit.sinks[FILE]
    assert isinstance(sink, Lines)
    return sink.events


ALICE = RequestContext(0, "app", ConnectionSession("10.0.0.7", principal=Principal(USER, "alice")))


def test_an_event_says_who_from_where_what_and_the_result(audit: AuditLog, events: list[dict[str, Any]]) -> None:
    audit.changed(ALICE, "delete topic", "topic orders")
    assert events == [
        {
            "ts": "1970-01-01T00:16:40.000Z",
            "event": "administrative change",
            "principal": "User:alice",
            "host": "10.0.0.7",
            "listener": "CLIENTS",
            "client_id": "app",
            "action": "delete topic",
            "resource": "topic orders",
            "result": "ok",
        }
    ]


def test_authentications_and_denials_are_events(audit: AuditLog, events: list[dict[str, Any]]) -> None:
    audit.authenticated(ALICE.session, SaslMechanism.PLAIN)
    audit.authentication_failed("10.0.0.8", "CLIENTS", "PLAIN", "bob", "wrong password")
    audit.denied(ALICE, "READ", "TOPIC", "secrets")
    assert [(event["event"], event["result"]) for event in events] == [
        ("client authenticated", "ok"),
        ("authentication failed", "failed"),
        ("operation denied", "denied"),
    ]
    assert events[1]["user"] == "bob"
    assert (events[2]["operation"], events[2]["resource"]) == ("READ", "TOPIC secrets")


def test_a_client_cannot_flood_the_log_with_denials(
    audit: AuditLog, events: list[dict[str, Any]], clock: FakeClock
) -> None:
    for number in range(1_000):
        audit.denied(ALICE, "READ", "TOPIC", f"topic-{number}")
    assert len(events) == 10
    assert audit.suppressed == 990
    clock.advance(60_000)
    audit.denied(ALICE, "READ", "TOPIC", "another")
    assert [event.get("suppressed") for event in events[10:]] == [990, None]


def test_changes_that_were_made_are_never_suppressed(audit: AuditLog, events: list[dict[str, Any]]) -> None:
    for number in range(500):
        audit.changed(ALICE, "delete topic", f"topic {number}")
        audit.changed(ALICE, "delete topic", f"topic {number}", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    results = [event["result"] for event in events]
    assert results.count("ok") == 500
    assert results.count("UNKNOWN_TOPIC_OR_PARTITION") == 10


def test_a_denied_change_is_not_recorded_twice(audit: AuditLog, events: list[dict[str, Any]]) -> None:
    audit.changed(ALICE, "delete topic", "topic a", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert events == []


def test_the_remaining_suppressed_events_are_counted_at_the_end(audit: AuditLog, events: list[dict[str, Any]]) -> None:
    for _ in range(15):
        audit.denied(ALICE, "READ", "TOPIC", "a")
    audit.finish()
    assert (events[-1]["event"], events[-1]["suppressed"]) == ("audit events suppressed", 5)


def test_values_of_secrets_are_hidden_and_long_values_cut(audit: AuditLog, events: list[dict[str, Any]]) -> None:
    audit.changed(ALICE, "change settings", "x" * 5_000, settings={"ssl.key.password": "hunter2"})
    assert events[0]["settings"] == {"ssl.key.password": "[hidden]"}
    assert len(events[0]["resource"]) < 1_100


def audited_broker(path: Path) -> Broker:
    return Broker(settings={"security": {"audit_file": str(path), "audit_topic": True}})


def test_changes_over_the_protocol_are_in_the_file_and_the_topic(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with audited_broker(path) as broker, Client(broker.bootstrap_servers) as client:
        admin = Admin(client)
        admin.topics.create("orders", partitions=2)
        admin.configs.alter_topic("orders", {"retention.ms": "1000"}, [])
        admin.users.set_password("alice", "a-secret", [SaslMechanism.SCRAM_SHA_256], 4096)
        admin.topics.delete(["orders"])
        with pytest.raises(BrokerError):
            admin.topics.delete(["orders"])
        records = read_audit(client, 5)
        assert_the_topic_is_protected(admin)
    lines = path.read_text().splitlines()
    assert [json.loads(line) for line in lines[:5]] == records
    assert [(record["action"], record["resource"], record["result"]) for record in records] == [
        ("create topic", "topic orders", "ok"),
        ("change settings", "topic orders", "ok"),
        ("set password", "user alice", "ok"),
        ("delete topic", "topic orders", "ok"),
        ("delete topic", "topic orders", "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert "a-secret" not in path.read_text()


def read_audit(client: Client, count: int) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    while len(records) < count:
        try:
            fetched = client.fetch("__audit", 0, Offset(len(records)))
        except BrokerError:
            # The topic is created in the background.
            continue
        for batch in fetched.batches:
            records += [json.loads(bytes(record.value or b"")) for record in iter_records(batch, bytes_max=1 << 20)]
    return records


def assert_the_topic_is_protected(admin: Admin) -> None:
    for change in (
        lambda: admin.topics.delete(["__audit"]),
        lambda: admin.configs.alter_topic("__audit", {"cleanup.policy": "compact"}, []),
        lambda: admin.configs.alter_topic("__audit", {}, ["cleanup.policy"]),
        lambda: admin.client.produce("__audit", 0, b"\0" * 100),
    ):
        with pytest.raises(BrokerError):
            change()
    admin.configs.alter_topic("__audit", {"retention.ms": "1000"}, [])


def test_a_change_is_recorded_when_it_is_complete(audit: AuditLog, events: list[dict[str, Any]]) -> None:
    """The dispatcher's handlers return responses, coroutines or futures."""
    request = DeleteGroupsRequest(groups_names=["g"])
    response = DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g")])

    async def handle() -> DeleteGroupsResponse:
        return response

    async def run() -> None:
        assert audit.watch(request, ALICE, response) is response
        watched = audit.watch(request, ALICE, handle())
        assert asyncio.iscoroutine(watched)
        assert len(events) == 1
        assert await watched is response
        assert len(events) == 2
        future = asyncio.get_running_loop().create_future()
        audit.watch(request, ALICE, future)
        future.set_result(response)
        await future
        await asyncio.sleep(0)
        assert [event["action"] for event in events] == ["delete group"] * 3

    asyncio.run(run())
