"""A small server of Iceberg's REST catalog protocol over pyiceberg's SQL catalog, for the calls of a writer."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import unquote

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest, Table

_END_S_MAX = 30.0


class RestCatalogServer:
    """Listens at `address`, and keeps its tables in `catalog`."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self._catalog = catalog
        self._staged: dict[tuple[str, ...], Table] = {}
        self._lock = Lock()
        handler = type("CatalogHandler", (_CatalogHandler,), {"catalog_server": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_port}"

    @contextmanager
    def running(self) -> Iterator["RestCatalogServer"]:
        thread = Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join(_END_S_MAX)
            self._server.server_close()
            self._catalog.close()

    def answer(self, method: str, path: str, body: bytes) -> tuple[HTTPStatus, Any]:
        """Return the status and the document of the answer."""
        names = [unquote(name) for name in path.partition("?")[0].strip("/").split("/")]
        with self._lock:
            try:
                return self._answer(method, names, body)
            except (NoSuchNamespaceError, NoSuchTableError) as error:
                return HTTPStatus.NOT_FOUND, _error(error, HTTPStatus.NOT_FOUND)
            except (CommitFailedException, TableAlreadyExistsError) as error:
                return HTTPStatus.CONFLICT, _error(error, HTTPStatus.CONFLICT)

    def _answer(self, method: str, names: list[str], body: bytes) -> tuple[HTTPStatus, Any]:  # noqa: PLR0911 - a table
        match (method, names):
            case ("GET", ["v1", "config"]):
                return HTTPStatus.OK, {"defaults": {}, "overrides": {}}
            case ("HEAD" | "GET", ["v1", "namespaces", namespace]):
                if not self._catalog.namespace_exists(namespace):
                    raise NoSuchNamespaceError(namespace)
                return HTTPStatus.OK, {"namespace": [namespace], "properties": {}}
            case ("POST", ["v1", "namespaces"]):
                namespace = json.loads(body)["namespace"]
                self._catalog.create_namespace(tuple(namespace))
                return HTTPStatus.OK, {"namespace": namespace, "properties": {}}
            case ("HEAD" | "GET", ["v1", "namespaces", namespace, "tables", name]):
                return HTTPStatus.OK, _loaded(self._catalog.load_table((namespace, name)))
            case ("POST", ["v1", "namespaces", namespace, "tables"]):
                return HTTPStatus.OK, self._stage(namespace, CreateTableRequest.model_validate_json(body))
            case ("POST", ["v1", "namespaces", namespace, "tables", name]):
                return HTTPStatus.OK, self._commit((namespace, name), CommitTableRequest.model_validate_json(body))
        return HTTPStatus.NOT_FOUND, {}

    def _stage(self, namespace: str, request: CreateTableRequest) -> Any:
        assert request.stage_create, "pyiceberg stages a table that a transaction creates"
        staged = self._catalog._create_staged_table(
            (namespace, request.name),
            request.table_schema,
            request.location,
            properties=request.properties,
        )
        self._staged[namespace, request.name] = staged
        return {"metadata": json.loads(staged.metadata.model_dump_json()), "config": {}}

    def _commit(self, identifier: tuple[str, str], request: CommitTableRequest) -> Any:
        try:
            table = self._catalog.load_table(identifier)
        except NoSuchTableError:
            table = self._staged[identifier]
        response = self._catalog.commit_table(table, tuple(request.requirements), tuple(request.updates))
        return json.loads(response.model_dump_json(by_alias=True))


class _CatalogHandler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    catalog_server: RestCatalogServer

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, document = self.catalog_server.answer(self.command, self.path, body)
        content = json.dumps(document).encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_DELETE = _answer  # noqa: N815 - http.server's names

    def log_message(self, *_: Any) -> None:
        """Write nothing to the test's output."""


def _loaded(table: Table) -> dict[str, Any]:
    return {
        "metadata-location": table.metadata_location,
        "metadata": json.loads(table.metadata.model_dump_json()),
        "config": {},
    }


def _error(error: Exception, status: HTTPStatus) -> dict[str, Any]:
    return {"error": {"message": str(error), "type": type(error).__name__, "code": int(status)}}
