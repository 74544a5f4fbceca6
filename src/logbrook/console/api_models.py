"""What the HTTP API takes and gives, as JSON.

A key, a value or a header's value is `null`, a text, or an object for what is none: `{"base64": "AAE="}`. In a request
it may also be `{"json": ...}`, which is written as compact JSON.
"""

import base64
import binascii
import json
from dataclasses import asdict
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

from logbrook.client.admin_results import GroupInfo, TopicInfo
from logbrook.console.messages import Message
from logbrook.pipelines.report import Report

RECORDS_MAX = 10_000


class Binary(BaseModel):
    """Any bytes."""

    model_config = ConfigDict(extra="forbid")
    base64: str


class AsJson(BaseModel):
    """Written as compact JSON."""

    model_config = ConfigDict(extra="forbid")
    json_: Any = Field(alias="json")


Given = str | Binary | AsJson | None
Shown = str | Binary | None


class HeaderIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    value: Given = None


class RecordIn(BaseModel):
    """`timestamp_ms` is now unless it is given; the partition is that of the key unless it is given."""

    model_config = ConfigDict(extra="forbid")
    key: Given = None
    value: Given = None
    headers: list[HeaderIn] = []
    partition: Annotated[int | None, Field(ge=0)] = None
    timestamp_ms: Annotated[int | None, Field(ge=0, lt=2**63)] = None


class ProduceIn(BaseModel):
    """Records, in the order in which they are to be written."""

    model_config = ConfigDict(extra="forbid")
    records: Annotated[list[RecordIn], Field(min_length=1, max_length=RECORDS_MAX)]


class Place(BaseModel):
    partition: int
    offset: int


class ProduceOut(BaseModel):
    """Where each record is, in the order of the request."""

    written: list[Place]


class HeaderOut(BaseModel):
    name: str
    value: Shown


class MessageOut(BaseModel):
    partition: int
    offset: int
    timestamp_ms: int
    key: Shown
    value: Shown
    headers: list[HeaderOut]

    @classmethod
    def of(cls, one: Message, only_base64: bool) -> Self:
        headers = [HeaderOut(name=name, value=shown(value, only_base64)) for name, value in one.headers]
        return cls(
            partition=one.partition,
            offset=one.offset,
            timestamp_ms=one.timestamp_ms,
            key=shown(one.key, only_base64),
            value=shown(one.value, only_base64),
            headers=headers,
        )


class FetchOut(BaseModel):
    """`next` has, for each partition that goes on, the offset from which; `was_cut` says that a search or a page of
    large messages stopped early."""

    messages: list[MessageOut]
    next: dict[int, int]
    scanned: int
    was_cut: bool


class TopicIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(min_length=1, max_length=249)]
    partitions: Annotated[int | None, Field(ge=1)] = None
    settings: dict[str, str] = {}


class PartitionOut(BaseModel):
    partition: int
    leader: int | None
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None


class TopicOut(BaseModel):
    name: str
    is_internal: bool
    messages: int | None
    size_bytes: int | None
    partitions: list[PartitionOut]

    @classmethod
    def of(cls, one: TopicInfo) -> Self:
        partitions = [
            PartitionOut(
                partition=each.partition,
                leader=each.leader,
                start_offset=each.start_offset,
                end_offset=each.end_offset,
                size_bytes=each.size_bytes,
            )
            for each in one.partitions
        ]
        return cls(
            name=one.name,
            is_internal=one.is_internal,
            messages=one.offsets,
            size_bytes=one.size_bytes,
            partitions=partitions,
        )


class TopicDetailOut(TopicOut):
    settings: dict[str, str | None] = {}


class GroupRow(BaseModel):
    group_id: str
    state: str


class MemberOut(BaseModel):
    member_id: str
    client_id: str
    host: str


class GroupPartitionOut(BaseModel):
    topic: str
    partition: int
    committed_offset: int | None
    end_offset: int | None
    lag: int | None
    member_id: str | None


class GroupOut(GroupRow):
    lag: int | None
    members: list[MemberOut]
    partitions: list[GroupPartitionOut]

    @classmethod
    def of(cls, one: GroupInfo) -> Self:
        members = [
            MemberOut(member_id=each.member_id, client_id=each.client_id, host=each.host) for each in one.members
        ]
        partitions = [
            GroupPartitionOut(
                topic=each.partition.topic,
                partition=each.partition.partition,
                committed_offset=each.committed_offset,
                end_offset=each.end_offset,
                lag=each.lag,
                member_id=None if each.member is None else each.member.member_id,
            )
            for each in one.partitions
        ]
        return cls(group_id=one.group_id, state=one.state, lag=one.lag, members=members, partitions=partitions)


class ResetIn(BaseModel):
    """`to` is start, end, offset or time, with `at` for the last two. With `dry_run` nothing is changed."""

    model_config = ConfigDict(extra="forbid")
    to: str
    at: str = ""
    topics: list[str] = []
    dry_run: bool = False


class ChangeOut(BaseModel):
    topic: str
    partition: int
    before: int | None
    after: int


class ResetOut(BaseModel):
    changes: list[ChangeOut]
    was_done: bool


class SinkOut(BaseModel):
    name: str
    rows: int
    rows_per_s: float
    batch_id: int | None
    batch_s: float | None
    batch_at_ms: int | None


class SourceOut(BaseModel):
    topic: str
    lag: int


class PipelineOut(BaseModel):
    """`state` is starting, running, stopped, failed, or lost when nothing was heard of a running one."""

    pipeline: str
    state: str
    since_ms: int
    said_ms: int
    rows_per_s: float
    lag: int | None
    batch_s: float | None
    error: str | None
    host: str
    pid: int
    version: str
    sinks: list[SinkOut]
    sources: list[SourceOut]

    @classmethod
    def of(cls, one: Report, now_ms: int) -> Self:
        return cls(
            pipeline=one.pipeline,
            state=one.state_at(now_ms),
            since_ms=one.since_ms,
            said_ms=one.said_ms,
            rows_per_s=one.rows_per_s,
            lag=one.lag,
            batch_s=one.batch_s,
            error=one.error,
            host=one.host,
            pid=one.pid,
            version=one.version,
            sinks=[SinkOut(**asdict(sink)) for sink in one.sinks],
            sources=[SourceOut(**asdict(source)) for source in one.sources],
        )


class HealthOut(BaseModel):
    """`brokers` are those that the cluster says it has."""

    status: str
    cluster_id: str | None
    brokers: int


class Problem(BaseModel):
    code: str
    message: str


class ErrorOut(BaseModel):
    error: Problem


def given_bytes(given: Given) -> bytes | None:
    """Raises ValueError for what is no base64."""
    match given:
        case None:
            return None
        case str():
            return given.encode()
        case Binary():
            try:
                return base64.b64decode(given.base64, validate=True)
            except binascii.Error as error:
                raise ValueError(f"it is not base64: {error}") from None
        case AsJson():
            return json.dumps(given.json_, separators=(",", ":"), ensure_ascii=False).encode()


def shown(data: bytes | None, only_base64: bool = False) -> Shown:
    """As text if it is one."""
    if data is None:
        return None
    if not only_base64:
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return Binary(base64=base64.b64encode(data).decode())
