"""Client of a schema registry with Confluent's REST API (Confluent, Karapace, Apicurio, Redpanda).

A schema never changes under its id, so each process asks for an id once. Requests are tried at every URL in turn, and
repeated after connection errors, 429 and 5xx; any other status is final.
"""

import base64
import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from logbrook.client import ClientError, RetryPolicy
from logbrook.spark.schemas.errors import RegistryError, UnknownSchemaError, UnreachableRegistryError

LATEST_VERSION = "latest"
DEFAULT_TYPE = "AVRO"
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_RETRIED_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
_BODY_BYTES_MAX = 16 << 20
_REFERENCE_DEPTH_MAX = 32


@dataclass(frozen=True, slots=True)
class RegistryConfig:
    """Address, credentials and limits. Credentials are not part of the representation, which logs may contain."""

    urls: tuple[str, ...]
    user_info: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    timeout_s: float = 10.0
    retries: int = 5

    @property
    def address(self) -> str:
        """The URLs without credentials, for messages."""
        return ",".join(_without_user_info(url) for url in self.urls)


class RegisteredSchema(NamedTuple):
    """A schema with the schemas that it refers to: pairs of name and text, each after those that it needs itself."""

    id: int
    type: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class _FailedAttemptError(ClientError):
    """A request that may succeed later, or at another URL."""

    is_retriable = True


class SchemaRegistry:
    """One per process and configuration; not thread-safe."""

    def __init__(self, config: RegistryConfig) -> None:
        self.config = config
        self._by_id: dict[int, RegisteredSchema] = {}
        self._attempts = 0

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema with this id. Raises UnknownSchemaError or RegistryError."""
        known = self._by_id.get(schema_id)
        if known is None:
            document = self._get(f"/schemas/ids/{schema_id}", f"there is no schema {schema_id}")
            known = self._by_id[schema_id] = self._registered(schema_id, document)
        return known

    def version(self, subject: str, version: str = LATEST_VERSION) -> RegisteredSchema:
        """Return a version of a subject, by default the latest. Raises UnknownSchemaError or RegistryError."""
        document = self._version(subject, version)
        schema_id = _integer(self.config, document, "id")
        if schema_id not in self._by_id:
            self._by_id[schema_id] = self._registered(schema_id, document)
        return self._by_id[schema_id]

    def register(self, subject: str, text: str, schema_type: str = DEFAULT_TYPE) -> int:
        """Register a schema under a subject unless it is there already, and return its id. Raises RegistryError."""
        body = {"schema": text} | ({"schemaType": schema_type} if schema_type != DEFAULT_TYPE else {})
        document = self._request("POST", f"/subjects/{quote(subject, safe='')}/versions", body)
        return _integer(self.config, document, "id")

    def look_up(self, subject: str, text: str, schema_type: str = DEFAULT_TYPE) -> int:
        """Return the id of a schema that is registered under a subject. Raises UnknownSchemaError or RegistryError."""
        body = {"schema": text} | ({"schemaType": schema_type} if schema_type != DEFAULT_TYPE else {})
        document = self._request("POST", f"/subjects/{quote(subject, safe='')}", body)
        return _integer(self.config, document, "id")

    def _version(self, subject: str, version: str) -> dict[str, Any]:
        return self._get(
            f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}",
            f"there is no version {version} of the subject {subject!r}",
        )

    def _registered(self, schema_id: int, document: Mapping[str, Any]) -> RegisteredSchema:
        text = document.get("schema")
        if not isinstance(text, str):
            raise RegistryError(self.config.address, f"its answer has no schema: {str(document)[:200]}")
        references = dict(self._references(document, 0))
        return RegisteredSchema(schema_id, document.get("schemaType") or DEFAULT_TYPE, text, tuple(references.items()))

    def _references(self, document: Mapping[str, Any], depth: int) -> Iterator[tuple[str, str]]:
        if depth > _REFERENCE_DEPTH_MAX:
            raise RegistryError(self.config.address, "the references of a schema are circular")
        for reference in document.get("references") or ():
            target = self._version(reference["subject"], str(reference["version"]))
            yield from self._references(target, depth + 1)
            yield reference["name"], target["schema"]

    def _get(self, path: str, missing: str) -> dict[str, Any]:
        try:
            return self._request("GET", path)
        except UnknownSchemaError:
            raise UnknownSchemaError(self.config.address, missing) from None

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        policy = RetryPolicy(tries_max=self.config.retries + 1, backoff_s=0.2, backoff_s_max=5.0)
        try:
            return policy.run(lambda: self._attempt(method, path, body))
        except _FailedAttemptError as error:
            raise UnreachableRegistryError(self.config.address, str(error)) from error

    def _attempt(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        url = self.config.urls[self._attempts % len(self.config.urls)]
        try:
            status, reason, content = _exchange(self.config, url, method, path, body)
        except (OSError, http.client.HTTPException) as error:
            self._attempts += 1
            raise _FailedAttemptError(f"it cannot be asked: {error or type(error).__name__}") from error
        if status in _RETRIED_STATUSES:
            self._attempts += 1
            raise _FailedAttemptError(f"it answers {status} {reason}")
        try:
            document = json.loads(content)
        except ValueError:
            document = None
        if status == 404:
            raise UnknownSchemaError(self.config.address, _message_of(document, reason))
        if status != 200:
            raise RegistryError(self.config.address, f"it answers {status} {_message_of(document, reason)}")
        if not isinstance(document, dict):
            raise RegistryError(self.config.address, f"its answer is not a JSON object: {content[:200]!r}")
        return document


def _exchange(
    config: RegistryConfig, url: str, method: str, path: str, body: Mapping[str, Any] | None
) -> tuple[int, str, bytes]:
    """Send one request. Returns status, reason and body. Raises OSError or HTTPException."""
    parts = urlsplit(url)
    connection = _connection(config, parts.scheme, parts.hostname or "", parts.port)
    headers = {"Accept": f"{_CONTENT_TYPE}, application/json"} | _authorization(config, url)
    content = None
    if body is not None:
        headers["Content-Type"] = _CONTENT_TYPE
        content = json.dumps(body).encode()
    try:
        connection.request(method, parts.path.rstrip("/") + path, content, headers)
        response = connection.getresponse()
        return response.status, response.reason, response.read(_BODY_BYTES_MAX)
    finally:
        connection.close()


def _connection(config: RegistryConfig, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=config.timeout_s)
    context = ssl.create_default_context(cafile=config.ca_file)
    if config.certificate_file is not None:
        context.load_cert_chain(config.certificate_file, config.key_file)
    return http.client.HTTPSConnection(host, port, timeout=config.timeout_s, context=context)


def _authorization(config: RegistryConfig, url: str) -> dict[str, str]:
    if config.token is not None:
        return {"Authorization": f"Bearer {config.token}"}
    user_info = config.user_info
    if user_info is None and "@" in urlsplit(url).netloc:
        user_info = unquote(urlsplit(url).netloc.rpartition("@")[0])
    if user_info is None:
        return {}
    return {"Authorization": f"Basic {base64.b64encode(user_info.encode()).decode()}"}


def _without_user_info(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _message_of(document: Any, reason: str) -> str:
    message = document.get("message") if isinstance(document, dict) else None
    return str(message or reason)


def _integer(config: RegistryConfig, document: Mapping[str, Any], name: str) -> int:
    value = document.get(name)
    if type(value) is not int:
        raise RegistryError(config.address, f"its answer has no {name}: {str(document)[:200]}")
    return value
