"""Values with a schema in a registry with Confluent's REST API: Avro, Protobuf and JSON Schema.

Such a value is a zero byte, the schema's id (4 bytes), for Protobuf the path of the message's type, and the encoded
value. A schema never changes under its id, so it is asked for once; a failure is remembered for half a minute. Avro
needs the package fastavro. Protobuf needs the package protobuf, and a registry that returns serialized descriptors
(Confluent, Redpanda from 25.2 on).
"""

import asyncio
import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from io import BytesIO
from time import monotonic
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import Request, urlopen

from logbrook.console.decoding import UndecodableError

_TIMEOUT_S = 5.0
_BODY_BYTES_MAX = 4 << 20
_FAILURE_KEPT_S = 30.0
_FRAME_BYTES = 5
_SCHEMAS_MAX = 10_000
_REFERENCE_DEPTH_MAX = 32
_WELL_KNOWN = re.compile(r"google/protobuf/(\w+)\.proto")

Document = dict[str, Any]
Decode = Callable[[bytes], Any]


class SchemaValues:
    """Decodes values by their schemas. `load` and `decode` are for the event loop, `fetch_and_decode` for threads."""

    def __init__(self, fetch: Callable[[str], Document]) -> None:
        """`fetch` returns the answer of the registry for a path; it blocks, and raises OSError or ValueError."""
        self._fetch = fetch
        self._decoders: dict[int, Decode] = {}
        self._failures: dict[int, tuple[float, str]] = {}

    async def load(self, values: Iterable[bytes | None]) -> None:
        """Fetch the schemas of these values that are not known yet, on a thread."""
        schema_ids = {schema_id for value in values if (schema_id := _schema_id(value)) is not None}
        for schema_id in sorted(schema_ids):
            if self._is_to_be_fetched(schema_id):
                await asyncio.to_thread(self._fetch_decoder, schema_id)

    def decode(self, data: bytes) -> Any:
        """Decode a framed value. Raises UndecodableError, also if its schema is not loaded."""
        schema_id = _schema_id(data)
        if schema_id is None:
            raise UndecodableError("it does not begin with a zero byte and the id of a schema")
        decode = self._decoders.get(schema_id)
        if decode is None:
            _, reason = self._failures.get(schema_id, (0.0, "it is not loaded yet"))
            raise UndecodableError(f"schema {schema_id} of the registry: {reason}")
        return decode(data[_FRAME_BYTES:])

    def fetch_and_decode(self, data: bytes) -> Any:
        """Decode a framed value after its schema is fetched. Blocks; raises UndecodableError."""
        schema_id = _schema_id(data)
        if schema_id is not None and self._is_to_be_fetched(schema_id):
            self._fetch_decoder(schema_id)
        return self.decode(data)

    def _is_to_be_fetched(self, schema_id: int) -> bool:
        if schema_id in self._decoders or len(self._decoders) >= _SCHEMAS_MAX:
            return False
        failed_s, _ = self._failures.get(schema_id, (-_FAILURE_KEPT_S, ""))
        return monotonic() - failed_s >= _FAILURE_KEPT_S

    def _fetch_decoder(self, schema_id: int) -> None:
        try:
            self._decoders[schema_id] = self._decoder(schema_id)
        except Exception as error:
            # A schema of the registry that cannot be used; its parsers raise errors of several libraries.
            self._failures[schema_id] = (monotonic(), str(error) or type(error).__name__)

    def _decoder(self, schema_id: int) -> Decode:
        document = self._fetch(f"/schemas/ids/{schema_id}")
        match document.get("schemaType") or "AVRO":
            case "AVRO":
                return self._avro_decoder(document)
            case "PROTOBUF":
                return self._protobuf_decoder(self._fetch(f"/schemas/ids/{schema_id}?format=serialized"))
            case "JSON":
                return json.loads
            case other:
                raise UndecodableError(f"schemas of type {other} are not supported")

    def _references(self, document: Document, query: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
        """Yield name and text of the schemas that a schema refers to, each after those that it needs itself."""
        if depth > _REFERENCE_DEPTH_MAX:
            raise UndecodableError("its references are circular")
        for reference in document.get("references") or ():
            subject, version = quote(str(reference["subject"]), safe=""), reference["version"]
            target = self._fetch(f"/subjects/{subject}/versions/{version}{query}")
            yield from self._references(target, query, depth + 1)
            yield str(reference["name"]), str(target["schema"])

    def _avro_decoder(self, document: Document) -> Decode:
        fastavro = _package("fastavro")
        names: dict[str, Any] = {}
        for _, text in self._references(document):
            fastavro.parse_schema(json.loads(text), names)
        schema = fastavro.parse_schema(json.loads(document["schema"]), names)
        return lambda data: fastavro.schemaless_reader(BytesIO(data), schema, None)

    def _protobuf_decoder(self, document: Document) -> Decode:
        descriptors = _package("google.protobuf.descriptor_pb2")
        pools = _package("google.protobuf.descriptor_pool")
        pool = pools.DescriptorPool()
        texts = dict(self._references(document, "?format=serialized"))
        file_name = ""
        for name, text in [*texts.items(), ("logbrook.console.proto", str(document["schema"]))]:
            file = descriptors.FileDescriptorProto.FromString(base64.b64decode(text))
            file.name = file_name = name
            for dependency in file.dependency:
                # Files such as google/protobuf/timestamp.proto are part of the package.
                match = _WELL_KNOWN.fullmatch(dependency)
                if dependency not in texts and match is not None:
                    module = _package(f"google.protobuf.{match[1]}_pb2")
                    pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
            pool.AddSerializedFile(file.SerializeToString())
        return _ProtobufDecoder(pool.FindFileByName(file_name))


class _ProtobufDecoder:
    """Decodes messages of the types of one file."""

    def __init__(self, file: Any) -> None:
        self._file = file
        # In the order of the file, by which values refer to them.
        self._names = list(file.message_types_by_name)

    def __call__(self, data: bytes) -> Any:
        path, position = _message_path(data)
        message = self._file.message_types_by_name[self._names[path[0]]]
        for index in path[1:]:
            message = message.nested_types[index]
        decoded = _package("google.protobuf.message_factory").GetMessageClass(message)()
        decoded.ParseFromString(data[position:])
        to_dict = _package("google.protobuf.json_format").MessageToDict
        return to_dict(decoded, preserving_proto_field_name=True)


def registry_fetch(url: str) -> Callable[[str], Document]:
    """Return the function that asks the registry at `url`, which may contain USER:PASSWORD@."""
    parts = urlsplit(url)
    user_info, _, host = parts.netloc.rpartition("@")
    base = parts._replace(netloc=host).geturl().rstrip("/")
    headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
    if user_info:
        headers["Authorization"] = f"Basic {base64.b64encode(unquote(user_info).encode()).decode()}"

    def fetch(path: str) -> Document:
        try:
            with urlopen(Request(base + path, headers=headers), timeout=_TIMEOUT_S) as response:
                document = json.loads(response.read(_BODY_BYTES_MAX))
        except HTTPError as error:
            error.close()
            raise ValueError(f"{base} answers {error.code} {error.reason}") from None
        if not isinstance(document, dict):
            raise ValueError(f"{base} does not answer with a JSON object")
        return document

    return fetch


def _schema_id(data: bytes | None) -> int | None:
    if data is None or len(data) < _FRAME_BYTES or data[0] != 0:
        return None
    return int.from_bytes(data[1:_FRAME_BYTES])


def _message_path(data: bytes) -> tuple[list[int], int]:
    """Return the indexes of the message's type and the position after them; a count of 0 means the first type."""
    count, position = _zigzag(data, 0)
    path = []
    for _ in range(count):
        index, position = _zigzag(data, position)
        path.append(index)
    return path or [0], position


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[position]
        result |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        package = "protobuf" if name.startswith("google.") else name
        raise UndecodableError(f"a package is missing: pip install {package}") from None
