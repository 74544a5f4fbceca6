"""Response bodies of the HTTP API.

A key, value or header value is `null`, a string, or `{"base64": "AAE="}` for bytes that are not UTF-8.
"""

import base64
from typing import Self

from pydantic import BaseModel

from logbrook.client.admin_results import GroupInfo, Setting, TopicDescription
from logbrook.console.api_inputs import Binary
from logbrook.console.messages import TopicMessage
from logbrook.pipelines.report import PipelineReport

Shown = str | Binary | None


class RecordPositionOut(BaseModel):
    partition: int
    offset: int


class ProduceOut(BaseModel):
    """Partition and offset of each record, in the order of the request."""

    written: list[RecordPositionOut]


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
    def of(cls, message: TopicMessage, only_base64: bool) -> Self:
        headers = [HeaderOut(name=name, value=shown(value, only_base64)) for name, value in message.headers]
        return cls(
            partition=message.partition,
            offset=message.offset,
            timestamp_ms=message.timestamp_ms,
            key=shown(message.key, only_base64),
            value=shown(message.value, only_base64),
            headers=headers,
        )


class FetchOut(BaseModel):
    """A page. `next` has the next offset of each partition, also at its end, and `next_query` the parameters of the
    request that continues there. `has_more` is True if there are more messages now; `was_cut` is True if a search, or
    a page of large messages, stopped at its limit."""

    messages: list[MessageOut]
    next: dict[int, int]
    next_query: str
    has_more: bool
    scanned: int
    was_cut: bool


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
    def of(cls, topic: TopicDescription) -> Self:
        partitions = [PartitionOut.model_validate(info, from_attributes=True) for info in topic.partitions]
        return cls(
            name=topic.name,
            is_internal=topic.is_internal,
            messages=topic.offsets,
            size_bytes=topic.size_bytes,
            partitions=partitions,
        )


class TopicDetailOut(TopicOut):
    settings: dict[str, str | None] = {}


class SettingOut(BaseModel):
    """`source` says where the value is set; `default` is the value without the topic's own."""

    name: str
    value: str | None
    source: str
    default: str | None
    is_read_only: bool

    @classmethod
    def of(cls, setting: Setting) -> Self:
        return cls(
            name=setting.name,
            value=None if setting.is_sensitive else setting.value,
            source=setting.source.name,
            default=setting.default,
            is_read_only=setting.is_read_only,
        )


class TrimmedOut(BaseModel):
    """The first offset of a partition, before and after."""

    partition: int
    before: int
    after: int


class TrimOut(BaseModel):
    partitions: list[TrimmedOut]
    was_done: bool


class GroupSummaryOut(BaseModel):
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


class GroupOut(GroupSummaryOut):
    lag: int | None
    members: list[MemberOut]
    partitions: list[GroupPartitionOut]

    @classmethod
    def of(cls, group: GroupInfo) -> Self:
        members = [MemberOut.model_validate(info, from_attributes=True) for info in group.members]
        partitions = [
            GroupPartitionOut(
                **info.partition._asdict(),
                committed_offset=info.committed_offset,
                end_offset=info.end_offset,
                lag=info.lag,
                member_id=None if info.member is None else info.member.member_id,
            )
            for info in group.partitions
        ]
        return cls(group_id=group.group_id, state=group.state, lag=group.lag, members=members, partitions=partitions)


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
    restarts: int


class SourceOut(BaseModel):
    topic: str
    lag: int


class PipelineOut(BaseModel):
    """`state` is starting, running, stopped, failed, or lost if a running pipeline has stopped reporting."""

    pipeline: str
    state: str
    since_ms: int
    said_ms: int
    rows_per_s: float
    lag: int | None
    batch_s: float | None
    restarts: int
    error: str | None
    host: str
    pid: int
    version: str
    sinks: list[SinkOut]
    sources: list[SourceOut]

    @classmethod
    def of(cls, report: PipelineReport, now_ms: int) -> Self:
        return cls.model_validate(report.status_at(now_ms))


class HealthOut(BaseModel):
    """`brokers` is the number of brokers in the cluster's metadata."""

    status: str
    cluster_id: str | None
    brokers: int


class ErrorBody(BaseModel):
    code: str
    message: str


class ErrorOut(BaseModel):
    error: ErrorBody


def shown(data: bytes | None, only_base64: bool = False) -> Shown:
    """Return bytes as a string if they are UTF-8, else as base64."""
    if data is None:
        return None
    if not only_base64:
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return Binary(base64=base64.b64encode(data).decode())
