"""The HTTP API under /api: produce, fetch, topics, groups, pipelines and health as JSON, for curl and scripts.

Every error is `{"error": {"code": ..., "message": ...}}` with a status that fits: the code is Kafka's where the cluster
said no.
"""

from collections.abc import Mapping
from time import time
from typing import Annotated

from fastapi import FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException

from logbrook.client import BrokerError, ConnectFailedError, TimedOutError
from logbrook.client.admin import Admin
from logbrook.client.admin_topics import CLUSTER_DEFAULT
from logbrook.console.api_models import (
    ChangeOut,
    ErrorOut,
    FetchOut,
    GroupOut,
    GroupRow,
    HealthOut,
    MessageOut,
    PipelineOut,
    Place,
    ProduceIn,
    ProduceOut,
    ResetIn,
    ResetOut,
    TopicDetailOut,
    TopicIn,
    TopicOut,
    given_bytes,
)
from logbrook.console.api_page import page_of
from logbrook.console.cluster import ClusterAccess
from logbrook.console.forms import position_of
from logbrook.console.guard import BODY_BYTES_MAX, BodyTooLargeError
from logbrook.console.messages import Page, Wanted, first_page
from logbrook.console.pipelines import Pipelines, now_ms
from logbrook.console.producing import NoSuchPartitionError, write
from logbrook.console.sentences import sentence_of
from logbrook.model import LogbrookError
from logbrook.model.version import VERSION
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.record import Record

MESSAGES_MAX = 1_000
_MESSAGES = 50
_DESCRIPTION = "Produce, fetch, topics and groups of a Kafka-protocol cluster, as JSON."
_NOT_FOUND = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND})
_CONFLICT = frozenset({ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NON_EMPTY_GROUP})
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_FORBIDDEN = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_ERRORS: Mapping[int | str, dict[str, object]] = {"default": {"model": ErrorOut, "description": "What went wrong"}}

TopicName = Annotated[str, Path(description="The topic's name.")]
GroupName = Annotated[str, Path(description="The group's id.")]


def make_api(access: ClusterAccess, pipelines: Pipelines) -> FastAPI:
    """An application to be mounted at /api."""
    api = FastAPI(
        title="Logbrook",
        version=VERSION,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        responses=dict(_ERRORS),
    )
    _answer_errors(api)
    _add_topics(api, access)
    _add_messages(api, access)
    _add_groups(api, access)

    @api.get("/pipelines", tags=["pipelines"])
    async def list_pipelines() -> list[PipelineOut]:
        """The pipelines that have said how they are, and what they said last."""
        await pipelines.refresh()
        return [PipelineOut.of(one, now_ms()) for one in pipelines.latest]

    @api.get("/health", tags=["health"])
    async def health() -> HealthOut:
        """Whether the cluster answers."""
        found = await access.ask(lambda admin: admin.describe_cluster())
        return HealthOut(status="ok", cluster_id=found.cluster_id, brokers=len(found.brokers))

    @api.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page_of(api.openapi()))

    return api


def _add_topics(api: FastAPI, access: ClusterAccess) -> None:
    @api.get("/topics", tags=["topics"])
    async def list_topics(
        internal: Annotated[bool, Query(description="The cluster's own topics too.")] = False,
    ) -> list[TopicOut]:
        """All topics, with their partitions and sizes."""
        topics = await access.ask(lambda admin: admin.topics.all())
        return [TopicOut.of(one) for one in topics if internal or not one.is_internal]

    @api.post("/topics", tags=["topics"], status_code=201)
    async def create_topic(wanted: TopicIn) -> TopicDetailOut:
        """Make a topic; what is not said is the cluster's default."""

        def create(admin: Admin) -> None:
            admin.topics.create(wanted.name, wanted.partitions or CLUSTER_DEFAULT, settings=wanted.settings)

        await access.ask(create)
        return await access.ask(lambda admin: _topic(admin, wanted.name))

    @api.get("/topics/{topic}", tags=["topics"])
    async def describe_topic(topic: TopicName) -> TopicDetailOut:
        """One topic, with its settings."""
        return await access.ask(lambda admin: _topic(admin, topic))

    @api.delete("/topics/{topic}", tags=["topics"], status_code=204)
    async def delete_topic(topic: TopicName) -> None:
        """Delete a topic and all its messages."""
        await access.ask(lambda admin: admin.topics.delete([topic]))


def _add_messages(api: FastAPI, access: ClusterAccess) -> None:
    @api.post("/topics/{topic}/messages", tags=["messages"])
    async def produce(topic: TopicName, wanted: ProduceIn) -> ProduceOut:
        """Write messages. They are as durable as the cluster makes them when this is answered."""
        now_ms = round(time() * 1000)
        records = [
            (
                Record(
                    given_bytes(one.key),
                    given_bytes(one.value),
                    tuple((header.name, given_bytes(header.value)) for header in one.headers),
                    now_ms if one.timestamp_ms is None else one.timestamp_ms,
                ),
                one.partition,
            )
            for one in wanted.records
        ]
        written = await access.ask(lambda admin: write(admin, topic, records))
        return ProduceOut(written=[Place(partition=one.partition, offset=one.offset) for one in written])

    @api.get("/topics/{topic}/messages", tags=["messages"])
    async def fetch(
        topic: TopicName,
        begin: Annotated[str, Query(alias="from", description="start, end (newest first), offset or time.")] = "start",
        at: Annotated[str, Query(description="The offset, or the time (ISO 8601 or ms).")] = "",
        partition: Annotated[int | None, Query(ge=0, description="Only this one.")] = None,
        limit: Annotated[int, Query(ge=1, le=MESSAGES_MAX)] = _MESSAGES,
        search: Annotated[str, Query(max_length=1_000, description="A text in keys, values or headers.")] = "",
        base64: Annotated[bool, Query(description="All keys and values as base64.")] = False,
    ) -> FetchOut:
        """Read messages. Go on with `from=offset`, `partition` and the offset that `next` has for it."""
        place = position_of(begin, at)
        wanted = Wanted(limit, search, BODY_BYTES_MAX)
        page: Page = await access.ask(lambda admin: first_page(admin, topic, partition, place, wanted))
        messages = [MessageOut.of(one, base64) for one in page.messages]
        return FetchOut(messages=messages, next=dict(page.following), scanned=page.scanned, was_cut=page.was_cut)


def _add_groups(api: FastAPI, access: ClusterAccess) -> None:
    @api.get("/groups", tags=["groups"])
    async def list_groups() -> list[GroupRow]:
        """All consumer groups."""
        groups = await access.ask(lambda admin: admin.groups.all())
        return [GroupRow(group_id=one.group_id, state=one.state) for one in groups]

    @api.get("/groups/{group}", tags=["groups"])
    async def describe_group(group: GroupName) -> GroupOut:
        """Its members, and how far it is in each partition."""
        return GroupOut.of(await access.ask(lambda admin: admin.groups.describe(group)))

    @api.post("/groups/{group}/reset", tags=["groups"])
    async def reset_group(group: GroupName, wanted: ResetIn) -> ResetOut:
        """Put a group without members elsewhere, in these topics or in all that it has read."""
        place = position_of(wanted.to, wanted.at)
        planned = await access.ask(lambda admin: admin.groups.plan_reset(group, place, wanted.topics))
        if not wanted.dry_run:
            await access.ask(lambda admin: admin.groups.reset(group, planned))
        changes = [
            ChangeOut(topic=one.partition.topic, partition=one.partition.partition, before=one.before, after=one.after)
            for one in planned
        ]
        return ResetOut(changes=changes, was_done=not wanted.dry_run)

    @api.delete("/groups/{group}", tags=["groups"], status_code=204)
    async def delete_group(group: GroupName) -> None:
        """Forget a group without members and all that it has committed."""
        await access.ask(lambda admin: admin.groups.delete([group]))


def _topic(admin: Admin, name: str) -> TopicDetailOut:
    found = TopicOut.of(admin.topics.describe(name))
    settings = {one.name: one.value for one in admin.configs.of_topic(name)}
    return TopicDetailOut(**found.model_dump(), settings=settings)


def _answer_errors(api: FastAPI) -> None:
    @api.exception_handler(LogbrookError)
    async def refused(_: Request, error: LogbrookError) -> JSONResponse:
        status, code = _status_of(error)
        return _answer(status, code, sentence_of(error))

    @api.exception_handler(RequestValidationError)
    async def not_understood(_: Request, error: RequestValidationError) -> JSONResponse:
        told = [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors()]
        # A value of several forms has a problem for each.
        return _answer(400, "INVALID_REQUEST", "; ".join(told[:5]))

    @api.exception_handler(ValueError)
    async def not_possible(_: Request, error: ValueError) -> JSONResponse:
        return _answer(400, "INVALID_REQUEST", str(error))

    @api.exception_handler(BodyTooLargeError)
    async def too_large(_: Request, __: BodyTooLargeError) -> JSONResponse:
        return _answer(413, "TOO_LARGE", f"a request has {BODY_BYTES_MAX} bytes at most")

    @api.exception_handler(HTTPException)
    async def not_there(_: Request, error: HTTPException) -> JSONResponse:
        return _answer(error.status_code, "NO_SUCH_CALL", f"{error.detail}; /api/docs lists what there is")


def _status_of(error: LogbrookError) -> tuple[int, str]:
    match error:
        case BrokerError():
            for codes, status in ((_NOT_FOUND, 404), (_CONFLICT, 409), (_TOO_LARGE, 413), (_FORBIDDEN, 403)):
                if error.code in codes:
                    return status, error.code.name
            return (503 if error.is_retriable else 400), error.code.name
        case NoSuchPartitionError():
            return 404, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
        case TimedOutError():
            return 504, "TIMED_OUT"
        case ConnectFailedError():
            return 503, "NO_BROKER"
        case _:
            return 502, "BAD_ANSWER"


def _answer(status: int, code: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"code": code, "message": message}}, status_code=status)
