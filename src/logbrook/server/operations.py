"""What operators, orchestrators and Prometheus may ask for over HTTP.

/healthz is for whoever restarts brokers: it fails once the disk has failed, which only a restart can mend.
/readyz is for whoever sends clients: it fails while the broker reads its groups back, and when it stops.
/maintenance is what `maintenance.mode = "on-demand"` leaves to the operator, done once, now. It changes what is on the
disk, so it takes a POST, and not one that a page in somebody's browser sends.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from logbrook.core.groups.errors import CoordinatorLoadingError
from logbrook.model.version import VERSION
from logbrook.server.http_messages import JSON, PROMETHEUS_TEXT, Request, Response, text_response
from logbrook.server.metrics.pages import Pages
from logbrook.server.metrics.scrape import Observed
from logbrook.storage.errors import StorageError

_INDEX = f"""\
Logbrook {VERSION}

GET  /metrics      for Prometheus
GET  /healthz      200 unless the storage is offline
GET  /readyz       200 once clients are welcome
POST /maintenance  a checkpoint and one round of retention and compaction, now
"""


class Operations:
    """One per broker. All of it runs on the event loop."""

    def __init__(self, broker: Observed) -> None:
        self._broker = broker
        self._pages = Pages(broker)
        self._maintenance: asyncio.Task[dict[str, Any]] | None = None
        self._routes: Mapping[str, Mapping[str, Callable[[], Awaitable[Response]]]] = {
            "/": {"GET": self._index},
            "/metrics": {"GET": self._metrics},
            "/healthz": {"GET": self._healthz},
            "/readyz": {"GET": self._readyz},
            "/maintenance": {"POST": self._maintain},
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
        return await routes[method]()

    async def settle(self) -> None:
        """Wait for the end of what was asked for."""
        if self._maintenance is not None:
            await asyncio.wait([self._maintenance])

    async def _index(self) -> Response:
        return Response(HTTPStatus.OK, _INDEX.encode())

    async def _metrics(self) -> Response:
        return Response(HTTPStatus.OK, await self._pages.open(), PROMETHEUS_TEXT)

    async def _healthz(self) -> Response:
        failure = self._broker.directory.environment.health.failure
        if failure is not None:
            return text_response(HTTPStatus.SERVICE_UNAVAILABLE, f"the storage is offline: {failure}")
        return text_response(HTTPStatus.OK, "ok")

    async def _readyz(self) -> Response:
        if not self._broker.is_ready:
            return text_response(HTTPStatus.SERVICE_UNAVAILABLE, "the broker is starting or stopping")
        try:
            # For its error alone.
            self._broker.services.groups.coordinator.list_groups(("",))
        except CoordinatorLoadingError:
            return text_response(HTTPStatus.SERVICE_UNAVAILABLE, "the consumer groups are not loaded")
        return text_response(HTTPStatus.OK, "ready")

    async def _maintain(self) -> Response:
        if self._maintenance is None:
            self._maintenance = asyncio.get_running_loop().create_task(self._run_maintenance())
            self._maintenance.add_done_callback(self._maintained)
        # It is nobody's to cancel: a checkpoint that was begun must be finished. Those who ask meanwhile share it.
        done = await asyncio.shield(self._maintenance)
        status = HTTPStatus.SERVICE_UNAVAILABLE if done["errors"] else HTTPStatus.OK
        return Response(status, (json.dumps(done) + "\n").encode(), JSON)

    async def _run_maintenance(self) -> dict[str, Any]:
        """What is synced can be compacted, so the checkpoint comes first; where it fails for want of room, the round
        may make some."""
        housekeeper = self._broker.housekeeper
        errors: list[str] = []
        if self._broker.is_ready:
            try:
                await housekeeper.checkpoint()
            except StorageError as error:
                errors.append(str(error))
        if not self._broker.is_ready:
            return {"errors": ["the broker is starting or stopping"]}
        done = await housekeeper.run_once()
        return {**asdict(done), "errors": errors}

    def _maintained(self, task: "asyncio.Task[dict[str, Any]]") -> None:
        self._maintenance = None
        if not task.cancelled():
            # Whoever asked hears of an exception; if they are gone, nobody does.
            task.exception()
