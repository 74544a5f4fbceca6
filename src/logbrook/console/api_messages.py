"""The messages of the HTTP API: produce, fetch with long polling, and streams.

A fetch is at positions: the next offset of each partition. They are part of the answer, and `from=positions` (forward)
or `from=before` (backward) continues there, as often as one likes: at the end of the topic a fetch with `wait_ms` waits
for messages. A stream is a sequence of fetches in one response. Waiting polls the cluster and occupies no thread.

Partitions that are added to the topic are read from their start, unless the request names its partition. Positions of
partitions 0 to n - 1 are those of a whole topic that had n partitions; other sets of positions are chosen partitions.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic, time
from typing import Annotated, NamedTuple

from fastapi import Depends, FastAPI, Path, Query, Request
from fastapi.responses import StreamingResponse
from starlette.responses import Response

from logbrook.client.admin import Admin
from logbrook.client.offset_specs import Latest
from logbrook.console.api_errors import error_document
from logbrook.console.api_inputs import ProduceIn, bytes_from_json
from logbrook.console.api_models import FetchOut, MessageOut, ProduceOut, RecordPositionOut
from logbrook.console.cluster import ClusterAsker
from logbrook.console.filters import EXPRESSION_LENGTH_MAX, compile_filter
from logbrook.console.formatting import parse_position
from logbrook.console.guard import BODY_BYTES_MAX, error_response
from logbrook.console.messages import MessagePage, PageRequest, first_page, log_bounds_of, next_page, write
from logbrook.model import LogbrookError
from logbrook.records.record import Record

MESSAGES_MAX = 1_000
WAIT_MS_MAX = 30_000
STREAMS_MAX = 50
_MESSAGES = 50
_POLL_S = 0.25
_HEARTBEAT_S = 10.0
_EVENT_STREAM = "text/event-stream"
_LINES = "application/x-ndjson"

TopicName = Annotated[str, Path(description="Name of the topic.")]
ReadPage = Callable[[Admin], MessagePage]


class FetchStart(NamedTuple):
    """The first page of a fetch, and the direction of those after it."""

    read: ReadPage
    backwards: bool


@dataclass(frozen=True, slots=True)
class FetchParameters:
    """The parameters that fetches and streams share."""

    begin: Annotated[
        str | None,
        Query(
            alias="from",
            description="start, end (newest first), now (only what is written from now on), offset or time; positions "
            "or before to continue after or before the positions in `at`. Default: start; of a stream: now.",
        ),
    ] = None
    at: Annotated[
        str,
        Query(
            max_length=10_000,
            description="The offset; the time (ISO 8601, UTC unless it has a zone, or ms); or positions as 0:12,1:7 "
            "(partitions after the last one are read from their start, unless `partition` is given).",
        ),
    ] = ""
    partition: Annotated[int | None, Query(ge=0, description="Only this partition.")] = None
    search: Annotated[str, Query(max_length=1_000, description="Text to find in keys, values or headers.")] = ""
    filter: Annotated[
        str,
        Query(max_length=EXPRESSION_LENGTH_MAX, description='Condition on fields, such as value.country == "DE".'),
    ] = ""
    base64: Annotated[bool, Query(description="Return all keys and values as base64.")] = False

    def request(self, limit: int) -> PageRequest:
        """Raises ValueError for an invalid filter."""
        where = compile_filter(self.filter) if self.filter.strip() else None
        return PageRequest(limit, self.search, BODY_BYTES_MAX, where)

    def start(self, topic: str, request: PageRequest, default: str) -> FetchStart:
        """Return how to read the first page. Raises ValueError for an invalid position."""
        begin, partition = self.begin or default, self.partition
        if begin in ("positions", "before"):
            positions, backwards = self._chosen_positions(), begin == "before"
            with_added = self.has_all_partitions and not backwards
            return FetchStart(
                lambda admin: next_page(admin, topic, positions, backwards, request, with_added=with_added), backwards
            )
        if begin == "now":
            return FetchStart(lambda admin: _page_at_end(admin, topic, partition), False)
        position = parse_position(begin, self.at)
        backwards = isinstance(position, Latest)
        return FetchStart(lambda admin: first_page(admin, topic, partition, position, request), backwards)

    def after(self, page: MessagePage, topic: str, request: PageRequest) -> ReadPage:
        """Return how to read the page after `page`, forward."""
        positions, with_added = page.positions, self.has_all_partitions
        return lambda admin: next_page(admin, topic, positions, False, request, with_added=with_added)

    def query_after(self, page: MessagePage, backwards: bool) -> str:
        """Return the parameters of the fetch that continues after `page`."""
        chosen = "" if self.partition is None else f"&partition={self.partition}"
        return f"from={'before' if backwards else 'positions'}&at={format_positions(page.positions)}{chosen}"

    @property
    def has_all_partitions(self) -> bool:
        """True unless the request names its partition."""
        return self.partition is None

    def _chosen_positions(self) -> dict[int, int]:
        positions = parse_positions(self.at)
        if self.partition is None:
            return positions
        if self.partition not in positions:
            raise ValueError(f"at has no position of partition {self.partition}")
        return {self.partition: positions[self.partition]}


Parameters = Annotated[FetchParameters, Depends()]


def parse_positions(text: str) -> dict[int, int]:
    """Parse PARTITION:OFFSET pairs such as `0:12,1:7`. Raises ValueError."""
    positions = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        partition, _, offset = pair.partition(":")
        if not all(part.isascii() and part.isdecimal() and len(part) < 19 for part in (partition, offset)):
            raise ValueError(f"{pair!r} is not a position: write PARTITION:OFFSET, several separated by commas")
        positions[int(partition)] = int(offset)
    if not positions:
        raise ValueError("at has no positions: write PARTITION:OFFSET, several separated by commas")
    return positions


def format_positions(positions: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def add_messages(api: FastAPI, access: ClusterAsker, stopping: asyncio.Event) -> None:
    """Add the calls to `api`. Streams end when `stopping` is set."""
    streams = MessageStreams(access, stopping)

    @api.post("/topics/{topic}/messages", tags=["messages"])
    async def produce(topic: TopicName, request: ProduceIn) -> ProduceOut:
        """Write messages; the answer is sent after the cluster has acknowledged them (acks=all)."""
        now_ms = round(time() * 1000)
        records = [
            (
                Record(
                    bytes_from_json(record.key),
                    bytes_from_json(record.value),
                    tuple((header.name, bytes_from_json(header.value)) for header in record.headers),
                    now_ms if record.timestamp_ms is None else record.timestamp_ms,
                ),
                record.partition,
            )
            for record in request.records
        ]
        written = await access.ask(lambda admin: write(admin, topic, records))
        positions = [RecordPositionOut(partition=record.partition, offset=record.offset) for record in written]
        return ProduceOut(written=positions)

    @api.get("/topics/{topic}/messages", tags=["messages"])
    async def fetch(
        topic: TopicName,
        parameters: Parameters,
        limit: Annotated[int, Query(ge=1, le=MESSAGES_MAX, description="Messages to return at most.")] = _MESSAGES,
        wait_ms: Annotated[
            int, Query(ge=0, le=WAIT_MS_MAX, description="Wait so long for messages if there are none (long poll).")
        ] = 0,
    ) -> FetchOut:
        """Read messages. Continue with the parameters in `next_query`, also from the end of the topic."""
        request = parameters.request(limit)
        start = parameters.start(topic, request, "start")
        page = await access.ask(start.read)
        deadline_s = monotonic() + wait_ms / 1000
        while not page.messages and not start.backwards and monotonic() < deadline_s:
            if not page.following:
                await _pause(stopping, min(_POLL_S, deadline_s - monotonic()))
            page = await access.ask(parameters.after(page, topic, request))
        return FetchOut(
            messages=[MessageOut.of(message, parameters.base64) for message in page.messages],
            next=dict(page.positions),
            next_query=parameters.query_after(page, start.backwards),
            has_more=bool(page.following),
            scanned=page.scanned,
            was_cut=page.was_cut,
        )

    @api.get(
        "/topics/{topic}/messages/stream",
        tags=["messages"],
        response_class=StreamingResponse,
        responses={200: {"content": {_LINES: {}, _EVENT_STREAM: {}}, "description": "Messages until the client stops"}},
    )
    async def stream(request: Request, topic: TopicName, parameters: Parameters) -> Response:
        """Send messages as they are written, by default from now on, until the client closes the connection.

        Partitions that are added to the topic meanwhile are included, unless `partition` is given.

        One JSON object per line, as in a fetch; an empty line from time to time shows that the connection is alive.
        With `Accept: text/event-stream` each message is a server-sent event. The ids of events are positions, so that
        a browser's EventSource continues where it was interrupted; it may receive the last messages again.
        """
        return await streams.open(topic, parameters, request)


class MessageStreams:
    """The streams in progress, at most 50."""

    def __init__(self, access: ClusterAsker, stopping: asyncio.Event) -> None:
        self._access = access
        self._stopping = stopping
        self._open = 0

    async def open(self, topic: str, parameters: FetchParameters, http_request: Request) -> Response:
        """Read the first page, so that errors have a status, and return the response that sends it and the rest."""
        if self._open >= STREAMS_MAX:
            return error_response(503, "TOO_MANY_STREAMS", f"the console has {STREAMS_MAX} streams already")
        has_events = _EVENT_STREAM in http_request.headers.get("accept", "")
        last_id = http_request.headers.get("last-event-id")
        if has_events and last_id:
            parameters = replace(parameters, begin="positions", at=last_id)
        request = parameters.request(MESSAGES_MAX)
        start = parameters.start(topic, request, "now")
        if start.backwards:
            raise ValueError("a stream goes forward: write from=now, start, offset, time or positions")
        page = await self._access.ask(start.read)

        def page_after(page: MessagePage) -> ReadPage:
            return parameters.after(page, topic, request)

        lines = self._lines(page, page_after, _Lines(has_events, parameters.base64))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(lines, media_type=_EVENT_STREAM if has_events else _LINES, headers=headers)

    async def _lines(
        self, page: MessagePage, page_after: Callable[[MessagePage], ReadPage], form: "_Lines"
    ) -> AsyncIterator[str]:
        self._open += 1
        try:
            sent_s = monotonic()
            # The first bytes send the headers, so that a client knows that the stream is open.
            yield form.heartbeat
            while not self._stopping.is_set():
                if page.messages:
                    yield form.messages(page)
                    sent_s = monotonic()
                elif not page.following:
                    await _pause(self._stopping, _POLL_S)
                if monotonic() - sent_s > _HEARTBEAT_S:
                    yield form.heartbeat
                    sent_s = monotonic()
                page = await self._access.ask(page_after(page))
        except LogbrookError as error:
            yield form.error(error)
        finally:
            self._open -= 1


class _Lines:
    """Encodes messages as lines of JSON or as server-sent events."""

    def __init__(self, has_events: bool, only_base64: bool) -> None:
        self._has_events = has_events
        self._only_base64 = only_base64
        self.heartbeat = ":\n\n" if has_events else "\n"

    def messages(self, page: MessagePage) -> str:
        texts = [MessageOut.of(message, self._only_base64).model_dump_json() for message in page.messages]
        if not self._has_events:
            return "".join(f"{text}\n" for text in texts)
        events = [f"data: {text}\n\n" for text in texts]
        # The positions of the page are those after its last message.
        events[-1] = f"id: {format_positions(page.positions)}\n{events[-1]}"
        return "".join(events)

    def error(self, error: LogbrookError) -> str:
        text = error_document(error)
        return f"event: error\ndata: {text}\n\n" if self._has_events else f"{text}\n"


def _page_at_end(admin: Admin, topic: str, partition: int | None) -> MessagePage:
    """Return an empty page at the ends of the partitions."""
    ends = log_bounds_of(admin, topic, partition).ends
    return MessagePage((), {}, {partition.partition: offset for partition, offset in ends.items()}, 0)


async def _pause(stopping: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), max(0.0, seconds))
