"""The HTTP API under /api: produce, fetch, topics, groups, cluster, pipelines and health as JSON, for curl and scripts.

An error is `{"error": {"code": ..., "message": ...}}` with a matching HTTP status. The code is Kafka's if the cluster
refused the request.
"""

import asyncio
from collections.abc import Mapping
from typing import Annotated

from fastapi import Body, Depends, FastAPI, Path, Query
from fastapi.responses import HTMLResponse

from logbrook.client.admin import Admin
from logbrook.client.admin_topics import CLUSTER_DEFAULT
from logbrook.client.offset_specs import Earliest, OffsetSpec
from logbrook.console.api_cluster import add_cluster
from logbrook.console.api_docs import api_docs_page
from logbrook.console.api_errors import add_error_handlers, refuse_unknown_parameters
from logbrook.console.api_inputs import PartitionsIn, ResetIn, SettingText, TopicIn, TrimIn
from logbrook.console.api_messages import TopicName, add_messages
from logbrook.console.api_models import (
    ChangeOut,
    ErrorOut,
    GroupOut,
    GroupSummaryOut,
    HealthOut,
    PipelineOut,
    ResetOut,
    SettingOut,
    TopicDetailOut,
    TopicOut,
    TrimmedOut,
    TrimOut,
)
from logbrook.console.cluster import ClusterAsker
from logbrook.console.formatting import parse_position
from logbrook.console.messages import NoSuchPartitionError, log_bounds_of
from logbrook.console.sampling import now_ms
from logbrook.console.workspace import current_session
from logbrook.model import TopicPartition
from logbrook.model.version import VERSION

_DESCRIPTION = "Produce, fetch, topics and groups of a Kafka-protocol cluster, as JSON."
_ERRORS: Mapping[int | str, dict[str, object]] = {
    "default": {"model": ErrorOut, "description": "Error code and message"}
}

# A group's id may contain slashes.
GroupName = Annotated[str, Path(description="Id of the group.")]
SettingChanges = Annotated[
    dict[str, SettingText | None],
    Body(
        min_length=1,
        description="New values by name; null removes the topic's own value, so that the default applies.",
    ),
]


def create_api(access: ClusterAsker, stopping: asyncio.Event) -> FastAPI:
    """Create the application to mount at /api. When `stopping` is set, open streams end."""
    api = FastAPI(
        title="Logbrook",
        version=VERSION,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        responses=dict(_ERRORS),
        dependencies=[Depends(refuse_unknown_parameters)],
    )
    add_error_handlers(api)
    _add_topics(api, access)
    _add_topic_changes(api, access)
    add_messages(api, access, stopping)
    _add_groups(api, access)
    add_cluster(api, access)

    @api.get("/pipelines", tags=["pipelines"])
    async def list_pipelines() -> list[PipelineOut]:
        """List pipelines with their last status report."""
        pipelines = current_session().workspace.pipelines
        await pipelines.refresh()
        return [PipelineOut.of(report, now_ms()) for report in pipelines.latest]

    @api.get("/health", tags=["health"])
    async def health() -> HealthOut:
        """Check that the cluster responds."""
        cluster = await access.ask(lambda admin: admin.describe_cluster())
        return HealthOut(status="ok", cluster_id=cluster.cluster_id, brokers=len(cluster.brokers))

    @api.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(api_docs_page(api.openapi()))

    return api


def _add_topics(api: FastAPI, access: ClusterAsker) -> None:
    @api.get("/topics", tags=["topics"])
    async def list_topics(
        internal: Annotated[bool, Query(description="Include internal topics.")] = False,
    ) -> list[TopicOut]:
        """List topics with their partitions and sizes."""
        topics = await access.ask(lambda admin: admin.topics.all())
        return [TopicOut.of(topic) for topic in topics if internal or not topic.is_internal]

    @api.post("/topics", tags=["topics"], status_code=201)
    async def create_topic(request: TopicIn) -> TopicDetailOut:
        """Create a topic; the cluster's defaults apply to everything that is left out."""
        count = request.partitions or CLUSTER_DEFAULT
        await access.ask(lambda admin: admin.topics.create(request.name, count, settings=request.settings))
        return await access.ask(lambda admin: _topic(admin, request.name))

    @api.get("/topics/{topic}", tags=["topics"])
    async def describe_topic(topic: TopicName) -> TopicDetailOut:
        """Describe a topic with its settings."""
        return await access.ask(lambda admin: _topic(admin, topic))

    @api.delete("/topics/{topic}", tags=["topics"], status_code=204)
    async def delete_topic(topic: TopicName) -> None:
        """Delete a topic and all its messages."""
        await access.ask(lambda admin: admin.topics.delete([topic]))


def _add_topic_changes(api: FastAPI, access: ClusterAsker) -> None:
    @api.get("/topics/{topic}/settings", tags=["topics"])
    async def list_settings(topic: TopicName) -> list[SettingOut]:
        """List the settings of a topic, with their defaults."""
        settings = await access.ask(lambda admin: admin.configs.of_topic(topic))
        return [SettingOut.of(setting) for setting in settings]

    @api.patch("/topics/{topic}/settings", tags=["topics"])
    async def change_settings(topic: TopicName, changes: SettingChanges) -> list[SettingOut]:
        """Set and unset settings of a topic; if one is invalid, none is changed. Returns the settings."""
        values = {name: value for name, value in changes.items() if value is not None}
        unset = [name for name, value in changes.items() if value is None]
        await access.ask(lambda admin: admin.configs.alter_topic(topic, values, unset))
        return await list_settings(topic)

    @api.post("/topics/{topic}/partitions", tags=["topics"])
    async def add_partitions(topic: TopicName, request: PartitionsIn) -> TopicDetailOut:
        """Add partitions. Keys may map to other partitions from then on, and partitions cannot be removed."""
        await access.ask(lambda admin: admin.topics.set_partitions(topic, request.count))
        return await access.ask(lambda admin: _topic(admin, topic))

    @api.post("/topics/{topic}/trim", tags=["topics"])
    async def trim(topic: TopicName, request: TrimIn) -> TrimOut:
        """Delete the messages before a position. This cannot be undone."""
        position = parse_position(request.to, str(request.at))
        if isinstance(position, Earliest):
            raise ValueError("to: nothing is before the start; write end, offset or time")
        trimmed = await access.ask(lambda admin: _trim(admin, topic, position, request))
        return TrimOut(partitions=trimmed, was_done=not request.dry_run)


def _trim(admin: Admin, topic: str, position: OffsetSpec, request: TrimIn) -> list[TrimmedOut]:
    bounds = log_bounds_of(admin, topic)
    offsets = bounds.resolve(position)
    chosen = {TopicPartition(topic, number) for number in request.partitions} or set(offsets)
    for partition in sorted(chosen - set(offsets)):
        raise NoSuchPartitionError(f"partition {partition.partition} does not exist: {topic} has {len(offsets)}")
    after = {partition: offsets[partition] for partition in sorted(chosen)}
    if not request.dry_run:
        after = admin.topics.delete_records(after)
    return [
        TrimmedOut(partition=partition.partition, before=bounds.starts[partition], after=offset)
        for partition, offset in sorted(after.items())
    ]


def _add_groups(api: FastAPI, access: ClusterAsker) -> None:
    @api.get("/groups", tags=["groups"])
    async def list_groups() -> list[GroupSummaryOut]:
        """List all consumer groups."""
        groups = await access.ask(lambda admin: admin.groups.all())
        return [GroupSummaryOut(group_id=group.group_id, state=group.state) for group in groups]

    @api.get("/groups/{group:path}", tags=["groups"])
    async def describe_group(group: GroupName) -> GroupOut:
        """Describe a group: its members, and its committed offset and lag in each partition."""
        return GroupOut.of(await access.ask(lambda admin: admin.groups.describe(group)))

    @api.post("/groups/{group:path}/reset", tags=["groups"])
    async def reset_group(group: GroupName, request: ResetIn) -> ResetOut:
        """Set the committed offsets of a group without members, in these topics or in all that it has offsets for."""
        position = parse_position(request.to, str(request.at))
        planned = await access.ask(
            lambda admin: admin.groups.plan_reset(group, position, request.topics, request.partitions)
        )
        if not request.dry_run:
            await access.ask(lambda admin: admin.groups.reset(group, planned))
        changes = [
            ChangeOut(**change.partition._asdict(), before=change.before, after=change.after) for change in planned
        ]
        return ResetOut(changes=changes, was_done=not request.dry_run)

    @api.delete("/groups/{group:path}", tags=["groups"], status_code=204)
    async def delete_group(group: GroupName) -> None:
        """Delete a group without members, with its committed offsets."""
        await access.ask(lambda admin: admin.groups.delete([group]))


def _topic(admin: Admin, name: str) -> TopicDetailOut:
    topic = TopicOut.of(admin.topics.describe(name))
    settings = {setting.name: setting.value for setting in admin.configs.of_topic(name)}
    return TopicDetailOut(**topic.model_dump(), settings=settings)
