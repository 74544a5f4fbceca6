"""What operators, orchestrators and Prometheus may ask for over HTTP.

/healthz is for whoever restarts brokers: it fails once the disk has failed, which only a restart can mend.
/readyz is for whoever sends clients: it fails while the broker reads its groups back, and when it stops.
/maintenance is what `maintenance.mode = "on-demand"` leaves to the operator, done once, now. `?partition=orders-0` (or
a topic, and as often as needed) does it there only, `?step=retention` or `?step=compaction` only that, `&active=true`
also to the segments that are being written.
/verify reads every byte of the logs, all or `?partition=` by name, and tells in lines of JSON how far it is and what it
found. It ends when whoever asked goes away.

The last two change what is on the disk, so they take a POST, and not one that a page in somebody's browser sends.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from logbrook.core.groups.errors import CoordinatorLoadingError
from logbrook.model import NothingNamedSoError, named_partitions
from logbrook.model.version import VERSION
from logbrook.server.http_messages import (
    JSON,
    JSON_LINES,
    PROMETHEUS_TEXT,
    RefusedError,
    Request,
    Response,
    text_response,
)
from logbrook.server.maintenance import Step, Work
from logbrook.server.metrics.pages import Pages
from logbrook.server.metrics.scrape import Observed
from logbrook.storage.errors import StorageError
from logbrook.storage.findings import Checked
from logbrook.storage.log import Log
from logbrook.storage.verification import Verified

_INDEX = f"""\
Logbrook {VERSION}

GET  /metrics      for Prometheus
GET  /healthz      200 unless the storage is offline
GET  /readyz       200 once clients are welcome
POST /maintenance  a checkpoint and one round of retention and compaction, now
                   ?partition=orders-0 there only (or a topic), ?step=retention or compaction only that
POST /verify       read every byte, and tell what is bad; ?partition= as above
"""
_NOT_READY = "the broker is starting or stopping"
# How often one who waits for a log to be read is told how far it is.
_PROGRESS_S = 1.0


class Operations:
    """One per broker. All of it runs on the event loop."""

    def __init__(self, broker: Observed) -> None:
        self._broker = broker
        self._pages = Pages(broker)
        self._maintenance: dict[Work, asyncio.Task[dict[str, Any]]] = {}
        self._verifications: set[asyncio.Task[Checked | None]] = set()
        self._is_settling = False
        self._routes: Mapping[str, Mapping[str, Callable[[Request], Awaitable[Response]]]] = {
            "/": {"GET": self._index},
            "/metrics": {"GET": self._metrics},
            "/healthz": {"GET": self._healthz},
            "/readyz": {"GET": self._readyz},
            "/maintenance": {"POST": self._maintain},
            "/verify": {"POST": self._verify},
        }

    async def answer(self, request: Request) -> Response:
        routes = self._routes.get(request.path)
        if routes is None:
            return text_response(HTTPStatus.NOT_FOUND, "there is nothing here; / has a list")
        method = "GET" if request.method == "HEAD" else request.method
        if method not in routes:
            allowed = ", ".join(("GET", "HEAD") if "GET" in routes else routes)
            return Response(HTTPStatus.METHOD_NOT_ALLOWED, f"use {allowed}\n".encode(), headers={"Allow": allowed})
        if method == "POST" and "origin" in request.headers:
            return text_response(HTTPStatus.FORBIDDEN, "not for pages in a browser")
        try:
            return await routes[method](request)
        except RefusedError as refused:
            return _json_response(refused.status, {"errors": [str(refused)]})

    async def settle(self) -> None:
        """Wait for the end of what was asked for. What can be cut short is."""
        self._is_settling = True
        if under_way := [*self._maintenance.values(), *self._verifications]:
            await asyncio.wait(under_way)

    async def _index(self, _request: Request) -> Response:
        return Response(HTTPStatus.OK, _INDEX.encode())

    async def _metrics(self, _request: Request) -> Response:
        return Response(HTTPStatus.OK, await self._pages.open(), PROMETHEUS_TEXT)

    async def _healthz(self, _request: Request) -> Response:
        failure = self._broker.directory.environment.health.failure
        if failure is not None:
            return text_response(HTTPStatus.SERVICE_UNAVAILABLE, f"the storage is offline: {failure}")
        return text_response(HTTPStatus.OK, "ok")

    async def _readyz(self, _request: Request) -> Response:
        if not self._broker.is_ready:
            return text_response(HTTPStatus.SERVICE_UNAVAILABLE, _NOT_READY)
        try:
            # For its error alone.
            self._broker.services.groups.coordinator.list_groups(("",))
        except CoordinatorLoadingError:
            return text_response(HTTPStatus.SERVICE_UNAVAILABLE, "the consumer groups are not loaded")
        return text_response(HTTPStatus.OK, "ready")

    async def _maintain(self, request: Request) -> Response:
        self._refuse_unless_ready()
        work = self._work(request)
        if work not in self._maintenance:
            task = asyncio.get_running_loop().create_task(self._run_maintenance(work))
            self._maintenance[work] = task
            task.add_done_callback(lambda task: self._maintained(work, task))
        # It is nobody's to cancel: a checkpoint that was begun must be finished. Those who ask meanwhile share it.
        done = await asyncio.shield(self._maintenance[work])
        return _json_response(HTTPStatus.SERVICE_UNAVAILABLE if done["errors"] else HTTPStatus.OK, done)

    async def _run_maintenance(self, work: Work) -> dict[str, Any]:
        """What is synced can be compacted, so the checkpoint comes first; where it fails for want of room, the round
        may make some."""
        housekeeper = self._broker.housekeeper
        errors: list[str] = []
        if self._broker.is_ready:
            try:
                if work.closes_active:
                    housekeeper.close_active(work)
                await housekeeper.checkpoint()
            except StorageError as error:
                errors.append(str(error))
        if not self._broker.is_ready:
            return {"errors": [_NOT_READY]}
        done = await housekeeper.run_once(work)
        return {**asdict(done), "errors": errors + done.errors}

    def _maintained(self, work: Work, task: "asyncio.Task[dict[str, Any]]") -> None:
        del self._maintenance[work]
        if not task.cancelled():
            # Whoever asked hears of an exception; if they are gone, nobody does.
            task.exception()

    async def _verify(self, request: Request) -> Response:
        self._refuse_unless_ready()
        asked = _asked(request, ("partition",))
        return Response(HTTPStatus.OK, self._verify_lines(self._named(asked.get("partition", ()))), JSON_LINES)

    async def _verify_lines(self, logs: Sequence[Log]) -> AsyncGenerator[bytes, None]:
        """A line for each log, a line about how far it is now and then, and one for the end if it comes to that."""
        watch = _Watch()
        checked: list[Checked] = []
        try:
            for log in logs:
                watch.found = Verified(0, 0, 0, 0)
                task = asyncio.get_running_loop().create_task(self._broker.housekeeper.verify(log, self._tell(watch)))
                self._verifications.add(task)
                task.add_done_callback(self._verifications.discard)
                while not (await asyncio.wait([task], timeout=_PROGRESS_S))[0]:
                    place = {"topic": log.partition.topic, "partition": log.partition.partition}
                    yield _line({"progress": {**place, **watch.found._asdict(), "bytes_total": log.size}})
                found = task.result()
                if found is not None:
                    checked.append(found)
                    yield _line(found.form())
                elif not log.is_deleted:
                    yield _line({"errors": [_NOT_READY]})
                    return
            yield _line(
                {"done": {"partitions": len(checked), "damaged": sum(one.damage is not None for one in checked)}}
            )
        finally:
            watch.is_wanted = False

    def _tell(self, watch: "_Watch") -> Callable[[Verified], bool]:
        def tell(found: Verified) -> bool:
            watch.found = found
            return watch.is_wanted and not self._is_settling

        return tell

    def _refuse_unless_ready(self) -> None:
        if not self._broker.is_ready or self._is_settling:
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, _NOT_READY)

    def _work(self, request: Request) -> Work:
        """Raises RefusedError."""
        asked = _asked(request, ("partition", "step", "active"))
        try:
            steps = frozenset(map(Step, asked.get("step", ()))) or frozenset(Step)
        except ValueError:
            words = " or ".join(step.value for step in Step)
            raise RefusedError(HTTPStatus.BAD_REQUEST, f"a step is {words}") from None
        active = asked.get("active", ["false"])[-1]
        if active not in ("true", "false"):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "active is true or false")
        names = asked.get("partition")
        partitions = None if names is None else frozenset(log.partition for log in self._named(names))
        return Work(steps, partitions, thorough=bool(asked), closes_active=active == "true")

    def _named(self, names: Sequence[str]) -> list[Log]:
        """Raises RefusedError."""
        logs = {log.partition: log for log in self._broker.housekeeper.logs()}
        try:
            return [logs[one] for one in named_partitions(list(logs), names)]
        except NothingNamedSoError as error:
            raise RefusedError(HTTPStatus.NOT_FOUND, str(error)) from None


class _Watch:
    """Somebody who waits for a log to be read."""

    def __init__(self) -> None:
        self.found = Verified(0, 0, 0, 0)
        self.is_wanted = True


def _asked(request: Request, known: Sequence[str]) -> dict[str, list[str]]:
    """Raises RefusedError for what nobody knows: it was meant to ask for less."""
    try:
        asked = parse_qs(request.query, keep_blank_values=True, strict_parsing=bool(request.query), errors="strict")
    except ValueError:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "what follows the question mark cannot be read") from None
    for name in asked:
        if name not in known:
            raise RefusedError(HTTPStatus.BAD_REQUEST, f"{name} is not known; there are {', '.join(known)}")
    return asked


def _json_response(status: HTTPStatus, content: Mapping[str, Any]) -> Response:
    return Response(status, _line(content), JSON)


def _line(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content) + "\n").encode()
