"""A schema registry inside the calling process, for tests: `with InMemoryRegistry() as registry:`.

It has the part of Confluent's REST API that serializers and deserializers use: registering, looking up and reading
schemas by id, subject and version. Schemas are kept in memory and are not checked for compatibility.
"""

import base64
import json
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from urllib.parse import unquote, urlsplit

_LATEST = "latest"


class StoredSchema(NamedTuple):
    """A schema as it was registered. `references` are objects with name, subject and version."""

    text: str
    type: str = "AVRO"
    references: tuple[Mapping[str, Any], ...] = ()

    def as_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"schema": self.text}
        if self.type != "AVRO":
            document["schemaType"] = self.type
        return document | ({"references": list(self.references)} if self.references else {})


class InMemoryRegistry:
    """`user_info` is USER:PASSWORD if requests must be authenticated. `requests` has "METHOD path" of each request."""

    def __init__(self, user_info: str | None = None) -> None:
        self._user_info = user_info
        # The id of a schema is its position, from 1.
        self._schemas: list[StoredSchema] = []
        self._subjects: dict[str, list[StoredSchema]] = {}
        self._failures: list[int] = []
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        handler = type("RegistryHandler", (_RequestHandler,), {"owner": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def fail_next(self, *statuses: int) -> None:
        """Answer the next requests with these statuses."""
        self._failures += statuses

    def register(
        self, subject: str, text: str, type_: str = "AVRO", references: Sequence[Mapping[str, Any]] = ()
    ) -> int:
        """Add a version to a subject unless it is there already, and return the schema's id."""
        with self._lock:
            schema = StoredSchema(text, type_, tuple(references))
            for known in (self._schemas, self._subjects.setdefault(subject, [])):
                if schema not in known:
                    known.append(schema)
            return self._id_of(schema)

    def handle(self, method: str, path: str, body: Any, authorization: str | None) -> tuple[int, Any]:
        """Return status and document of the answer to a request."""
        self.requests.append(f"{method} {path}")
        if self._failures:
            return self._failures.pop(0), {"error_code": 50001, "message": "Error in the backend data store"}
        expected = base64.b64encode((self._user_info or "").encode()).decode()
        if self._user_info is not None and authorization != f"Basic {expected}":
            return 401, {"error_code": 401, "message": "Unauthorized"}
        return self._route(method, path, body)

    def _route(self, method: str, path: str, body: Any) -> tuple[int, Any]:  # noqa: PLR0911 - one per resource
        match method, [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]:
            case "GET", ["subjects"]:
                return 200, list(self._subjects)
            case "GET", ["schemas", "ids", number]:
                return self._schema(number)
            case "POST", ["subjects", subject, "versions"]:
                return 200, {"id": self._register(subject, body)}
            case "POST", ["subjects", subject]:
                return self._look_up(subject, body)
            case "GET", ["subjects", subject, "versions"]:
                return 200, list(range(1, len(self._subjects.get(subject, [])) + 1))
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _id_of(self, schema: StoredSchema) -> int:
        return self._schemas.index(schema) + 1

    def _register(self, subject: str, body: Any) -> int:
        return self.register(subject, body["schema"], body.get("schemaType", "AVRO"), body.get("references", ()))

    def _schema(self, number: str) -> tuple[int, Any]:
        if number.isdecimal() and 1 <= int(number) <= len(self._schemas):
            return 200, self._schemas[int(number) - 1].as_json()
        return 404, {"error_code": 40403, "message": f"Schema {number} not found"}

    def _version(self, subject: str, version: str) -> tuple[int, Any]:
        versions = self._subjects.get(subject)
        if not versions:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = len(versions) if version == _LATEST else int(version)
        if not 1 <= number <= len(versions):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        return 200, self._described(subject, number)

    def _look_up(self, subject: str, body: Any) -> tuple[int, Any]:
        for number, schema in enumerate(self._subjects.get(subject, []), 1):
            if schema.text == body["schema"]:
                return 200, self._described(subject, number)
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _described(self, subject: str, number: int) -> dict[str, Any]:
        schema = self._subjects[subject][number - 1]
        return {"subject": subject, "version": number, "id": self._id_of(schema)} | schema.as_json()


class _RequestHandler(BaseHTTPRequestHandler):
    owner: InMemoryRegistry

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def _answer(self, body: Any) -> None:
        status, document = self.owner.handle(self.command, self.path, body, self.headers.get("Authorization"))
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
