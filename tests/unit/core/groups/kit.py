"""Builders and a driver for the tests of the group coordinator shard."""

from dataclasses import dataclass, field
from typing import Any

from logbrook.config import GroupConfig
from logbrook.core.groups.errors import GroupError
from logbrook.core.groups.group import GroupState
from logbrook.core.groups.messages import (
    CommitRequest,
    GroupOutcome,
    GroupWrite,
    JoinRequest,
    JoinResult,
    OffsetToCommit,
    SyncRequest,
)
from logbrook.core.groups.shard import GroupCoordinatorShard
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.records.fields import FieldWriter
from logbrook.testing.seeded_random import SeededRandom

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def subscription(*topics: str) -> bytes:
    """Return the subscription metadata of a consumer, version 0."""
    writer = FieldWriter().int16(0).int32(len(topics))
    for topic in topics:
        writer.string(topic)
    return writer.int32(-1).finish()


def a_config(**settings: Any) -> GroupConfig:
    return GroupConfig(**{"initial_rebalance_delay_ms": 0, **settings})


def a_coordinator(**settings: int) -> GroupCoordinatorShard:
    """Return a shard that is open for requests since the time 0."""
    coordinator = GroupCoordinatorShard(a_config(**settings), SeededRandom())
    coordinator.finish_loading(now_ms=0)
    return coordinator


def a_join(
    client_id: str = "c",
    *,
    group_id: str = "g",
    member_id: str = "",
    instance_id: str | None = None,
    protocols: tuple[tuple[str, bytes], ...] = (("range", subscription("t")),),
    session_timeout_ms: int = 10_000,
    rebalance_timeout_ms: int = 60_000,
    protocol_type: str = "consumer",
) -> JoinRequest:
    return JoinRequest(
        group_id,
        member_id,
        client_id,
        "127.0.0.1",
        session_timeout_ms,
        rebalance_timeout_ms,
        protocol_type,
        protocols,
        instance_id,
    )


def a_commit(
    offset: int, *, partition: TopicPartition = T0, member_id: str = "", generation: int = -1
) -> CommitRequest:
    return CommitRequest("g", member_id, generation, [OffsetToCommit(partition, Offset(offset))])


@dataclass(slots=True)
class Shell:
    """Carries out what a coordinator returns, as the server does; each write is durable at once."""

    coordinator: GroupCoordinatorShard
    now_ms: int = 0
    results: dict[object, object] = field(default_factory=dict)
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)

    def apply(self, outcome: GroupOutcome) -> None:
        for reply in outcome.replies:
            assert reply.reply_to not in self.results, "answered twice"
            self.results[reply.reply_to] = reply.result
        for write in outcome.writes:
            self.write(write)

    def write(self, write: GroupWrite) -> None:
        for key, value in write.records:
            self.log.append((key, value))
            self.coordinator.replay(key, value)
        for reply in write.replies:
            assert reply.reply_to not in self.results, "answered twice"
            self.results[reply.reply_to] = reply.result

    def join(self, reply_to: object, request: JoinRequest) -> object:
        """Return the reply to the join; None if it is pending."""
        self.apply(self.coordinator.join(request, reply_to, self.now_ms))
        return self.results.get(reply_to)

    def sync(self, reply_to: object, request: SyncRequest) -> object:
        self.apply(self.coordinator.sync(request, reply_to, self.now_ms))
        return self.results.get(reply_to)

    def stable_member(self) -> JoinResult:
        """Return a Stable group `g` with one member."""
        joined = self.join("first join", a_join())
        assert isinstance(joined, JoinResult)
        self.sync("first sync", SyncRequest("g", joined.generation, joined.member_id))
        assert self.coordinator.describe("g").state == GroupState.STABLE
        return joined


def refusal(result: object) -> type[GroupError]:
    """Return the class of the error that a request was answered with."""
    assert isinstance(result, GroupError), result
    return type(result)
