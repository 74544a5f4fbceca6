"""The HTTP endpoints for operators, orchestrators and Prometheus.

/metrics      all metrics in Prometheus' text format
/healthz      liveness: 503 once the storage is offline, which only a restart ends
/readyz       readiness: 503 while groups and transactions are loading, and while the broker stops
/maintenance  run a checkpoint and one round of maintenance now; `?partition=orders-0` (or a topic; repeatable) limits
              it, `?step=retention` or `?step=compaction` selects a step, `&active=true` includes the active segments
/verify       read and check all logs, or those of `?partition=`; progress and findings are JSON lines. It stops when
              the client disconnects

/maintenance and /verify change data on disk. They require POST, are refused to pages of other web sites, and need
authentication or a client on this machine (`security.http_access`). With ACLs, /metrics needs DESCRIBE on the cluster,
and /maintenance and /verify need ALTER.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from logbrook.core.acls import AclOperation
from logbrook.model import UnknownPartitionNameError, select_partitions
from logbrook.model.version import VERSION
from logbrook.server.api import RequestContext
from logbrook.server.http import (
    JSON,
    JSON_LINES,
    PROMETHEUS_TEXT,
    HttpError,
    HttpRequest,
    HttpResponse,
    text_response,
)
from logbrook.server.maintenance import MaintenanceStep, MaintenanceWork
from logbrook.server.metrics.scrape import MetricsPages, RunningBroker
from logbrook.server.security.http_access import HttpAccess
from logbrook.storage.errors import StorageError
from logbrook.storage.log import Log
from logbrook.storage.verification import LogCheckResult, VerificationTotals

_INDEX = f"""\
Logbrook {VERSION}

GET  /metrics      metrics for Prometheus
GET  /healthz      200 unless the storage is offline
GET  /readyz       200 if clients can be served
POST /maintenance  run a checkpoint and one round of retention and compaction now;
                   ?partition=orders-0 (or a topic) limits it, ?step=retention or ?step=compaction selects a step
POST /verify       read and check all logs; ?partition= as above
"""
_NOT_READY = "the broker is starting or stopping"
# The operation on the cluster that a request needs. Others need none.
_RIGHTS = {
    "/metrics": AclOperation.DESCRIBE,
    "/maintenance": AclOperation.ALTER,
    "/verify": AclOperation.ALTER,
}
# Interval of the progress lines of /verify.
_PROGRESS_S = 1.0


class Operations:
    """The endpoints of one broker: an `HttpHandler`, on the broker's event loop."""

    health_paths: Collection[str] = frozenset({"/healthz", "/readyz"})

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        self._access = HttpAccess(broker.services)
        self._pages = MetricsPages(broker)
        self._maintenance: dict[MaintenanceWork, asyncio.Task[dict[str, Any]]] = {}
        self._verifications: set[asyncio.Task[LogCheckResult | None]] = set()
        self._is_settling = False
        self._routes: Mapping[str, Mapping[str, Callable[[HttpRequest], Awaitable[HttpResponse]]]] = {
            "/": {"GET": self._index},
            "/metrics": {"GET": self._metrics},
            "/healthz": {"GET": self._healthz},
            "/readyz": {"GET": self._readyz},
            "/maintenance": {"POST": self._maintain},
            "/verify": {"POST": self._verify},
        }

    async def identify(self, request: HttpRequest) -> RequestContext:
        """Raises HttpError."""
        if request.path in self.health_paths and request.method in ("GET", "HEAD"):
            return self._access.anonymous(request)
        return await self._access.identify(request)

    async def answer(self, request: HttpRequest, context: RequestContext) -> HttpResponse:
        routes = self._routes.get(request.path)
        if routes is None:
            return text_response(HTTPStatus.NOT_FOUND, "not found; see / for the endpoints")
        method = "GET" if request.method == "HEAD" else request.method
        if method not in routes:
            allowed = ", ".join(("GET", "HEAD") if "GET" in routes else routes)
            return HttpResponse(HTTPStatus.METHOD_NOT_ALLOWED, f"use {allowed}\n".encode(), headers={"Allow": allowed})
        try:
            if request.path in _RIGHTS:
                self._access.check(context, _RIGHTS[request.path])
            if method == "POST":
                action = request.path.removeprefix("/")
                self._broker.services.audit.changed(context, action, "cluster", query=request.query)
            return await routes[method](request)
        except HttpError as error:
            return _json_response(error.status, {"errors": [str(error)]})

    async def settle(self) -> None:
        """Stop verifications, and wait for them and for maintenance that was requested."""
        self._is_settling = True
        if running := [*self._maintenance.values(), *self._verifications]:
            await asyncio.wait(running)

    async def _index(self, _request: HttpRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, _INDEX.encode())

    async def _metrics(self, _request: HttpRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, await self._pages.open(), PROMETHEUS_TEXT)

    async def _healthz(self, _request: HttpRequest) -> HttpResponse:
        failures = [member.environment.health.failure for member in self._broker.directory.members]
        failure = failures[0]
        if failure is not None and None not in failures:
            return text_response(HTTPStatus.SERVICE_UNAVAILABLE, f"the storage is offline: {failure}")
        return text_response(HTTPStatus.OK, "ok")

    async def _readyz(self, _request: HttpRequest) -> HttpResponse:
        if not self._broker.is_ready:
            return text_response(HTTPStatus.SERVICE_UNAVAILABLE, _NOT_READY)
        services = self._broker.services
        if not (services.groups.runtime.is_ready and services.transactions.runtime.is_ready):
            return text_response(HTTPStatus.SERVICE_UNAVAILABLE, "groups and transactions are loading")
        return text_response(HTTPStatus.OK, "ready")

    async def _maintain(self, request: HttpRequest) -> HttpResponse:
        self._check_ready()
        work = self._work(request)
        if work not in self._maintenance:
            task = asyncio.get_running_loop().create_task(self._run_maintenance(work))
            self._maintenance[work] = task
            task.add_done_callback(lambda task: self._maintained(work, task))
        # Shielded: a checkpoint must be finished, even if the client disconnects. Equal requests share one run.
        outcome = await asyncio.shield(self._maintenance[work])
        return _json_response(HTTPStatus.SERVICE_UNAVAILABLE if outcome["errors"] else HTTPStatus.OK, outcome)

    async def _run_maintenance(self, work: MaintenanceWork) -> dict[str, Any]:
        """Run a checkpoint, then a round: only synced segments can be compacted.

        The round also runs if the checkpoint fails, since it may free disk space.
        """
        maintenance = self._broker.maintenance
        errors: list[str] = []
        if self._broker.is_ready:
            try:
                if work.rolls_active_segments:
                    maintenance.roll_active_segments(work)
                await maintenance.checkpoint()
            except StorageError as error:
                errors.append(str(error))
        if not self._broker.is_ready:
            return {"errors": [_NOT_READY]}
        result = await maintenance.run_once(work)
        return {**asdict(result), "errors": errors + result.errors}

    def _maintained(self, work: MaintenanceWork, task: "asyncio.Task[dict[str, Any]]") -> None:
        del self._maintenance[work]
        if not task.cancelled():
            # Mark an exception as retrieved: the clients that wait for the task report it, if there are any left.
            task.exception()

    async def _verify(self, request: HttpRequest) -> HttpResponse:
        self._check_ready()
        parameters = _query_parameters(request, ("partition",))
        logs = self._select_logs(parameters.get("partition", ()))
        return HttpResponse(HTTPStatus.OK, self._verify_lines(logs), JSON_LINES)

    async def _verify_lines(self, logs: Sequence[Log]) -> AsyncGenerator[bytes, None]:
        """Yield a line for each log, progress lines in between, and a final line unless the broker stops."""
        progress = _VerificationProgress()
        checked: list[LogCheckResult] = []
        try:
            for log in logs:
                progress.totals = VerificationTotals(0, 0, 0, 0)
                task = asyncio.get_running_loop().create_task(
                    self._broker.maintenance.verify(log, self._progress_callback(progress))
                )
                self._verifications.add(task)
                task.add_done_callback(self._verifications.discard)
                while not (await asyncio.wait([task], timeout=_PROGRESS_S))[0]:
                    name = {"topic": log.partition.topic, "partition": log.partition.partition}
                    yield _line({"progress": {**name, **progress.totals._asdict(), "bytes_total": log.size}})
                result = task.result()
                if result is not None:
                    checked.append(result)
                    yield _line(result.form())
                elif not log.is_deleted:
                    yield _line({"errors": [_NOT_READY]})
                    return
            yield _line(
                {"done": {"partitions": len(checked), "damaged": sum(result.damage is not None for result in checked)}}
            )
        finally:
            progress.is_wanted = False

    def _progress_callback(self, progress: "_VerificationProgress") -> Callable[[VerificationTotals], bool]:
        def on_progress(totals: VerificationTotals) -> bool:
            progress.totals = totals
            return progress.is_wanted and not self._is_settling

        return on_progress

    def _check_ready(self) -> None:
        if not self._broker.is_ready or self._is_settling:
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, _NOT_READY)

    def _work(self, request: HttpRequest) -> MaintenanceWork:
        """Raises HttpError."""
        parameters = _query_parameters(request, ("partition", "step", "active"))
        try:
            steps = frozenset(map(MaintenanceStep, parameters.get("step", ()))) or frozenset(MaintenanceStep)
        except ValueError:
            names = " or ".join(step.value for step in MaintenanceStep)
            raise HttpError(HTTPStatus.BAD_REQUEST, f"step must be {names}") from None
        active = parameters.get("active", ["false"])[-1]
        if active not in ("true", "false"):
            raise HttpError(HTTPStatus.BAD_REQUEST, "active must be true or false")
        partitions = None
        if "partition" in parameters:
            partitions = frozenset(log.partition for log in self._select_logs(parameters["partition"]))
        return MaintenanceWork(steps, partitions, thorough=bool(parameters), rolls_active_segments=active == "true")

    def _select_logs(self, names: Sequence[str]) -> list[Log]:
        """Raises HttpError."""
        logs = {log.partition: log for log in self._broker.maintenance.logs()}
        try:
            return [logs[partition] for partition in select_partitions(list(logs), names)]
        except UnknownPartitionNameError as error:
            raise HttpError(HTTPStatus.NOT_FOUND, str(error)) from None


class _VerificationProgress:
    """Progress of a verification; `is_wanted` is True while a client waits for it."""

    def __init__(self) -> None:
        self.totals = VerificationTotals(0, 0, 0, 0)
        self.is_wanted = True


def _query_parameters(request: HttpRequest, names: Sequence[str]) -> dict[str, list[str]]:
    """Reject unknown query parameters: ignoring a filter would widen the request. Raises HttpError."""
    try:
        parameters = parse_qs(
            request.query, keep_blank_values=True, strict_parsing=bool(request.query), errors="strict"
        )
    except ValueError:
        raise HttpError(HTTPStatus.BAD_REQUEST, "malformed query string") from None
    for name in parameters:
        if name not in names:
            raise HttpError(HTTPStatus.BAD_REQUEST, f"unknown parameter {name}; use {', '.join(names)}")
    return parameters


def _json_response(status: HTTPStatus, content: Mapping[str, Any]) -> HttpResponse:
    return HttpResponse(status, _line(content), JSON)


def _line(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content) + "\n").encode()
