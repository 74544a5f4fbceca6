"""Readable text of keys and values: JSON, text, hex, MessagePack, CBOR, XML, and values with a registered schema.

MessagePack, CBOR, Avro and Protobuf are decoded by packages that may be missing. Decoded values are shown as JSON, in
which bytes are `{"base64": ...}`. Records are untrusted: a value is decoded only up to 256 KiB, a result may have
100,000 parts nested 100 deep, and XML with a document type, which can define exponentially large entities, stays text.
"""

import base64
import json
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any
from xml.dom.minidom import parseString

from logbrook.console.formatting import decode_text
from logbrook.model.text import hex_dump

SHOWN_BYTES_MAX = 256 << 10
_PREVIEW_BYTES_MAX = 8 << 10
_PARTS_MAX = 100_000
_DEPTH_MAX = 100

SCHEMA_FORM = "schema"
FORMS = {
    "json": "JSON",
    "text": "Text",
    "hex": "Hex",
    "xml": "XML",
    "msgpack": "MessagePack",
    "cbor": "CBOR",
    SCHEMA_FORM: "Avro or Protobuf",
}
_PACKAGES = {"msgpack": "msgpack", "cbor": "cbor2"}


class UndecodableError(ValueError):
    """A value does not have the chosen format; the message says why."""


Decode = Callable[[bytes], Any]


def value_decoder(form: str, decode_schema: Decode | None) -> Decode | None:
    """Return the function that decodes values of a binary format to those of JSON, None for other formats.

    It raises UndecodableError.
    """
    decode = decode_schema or _without_registry if form == SCHEMA_FORM else _DECODERS.get(form)
    return None if decode is None else lambda data: _decoded(decode, data)


def missing_package(form: str) -> str | None:
    """Return the package that a format needs if it is not installed."""
    package = _PACKAGES.get(form)
    if package is None:
        return None
    try:
        import_module(package)
    except ImportError:
        return package
    return None


def format_bytes(data: bytes | None, form: str, decode_schema: Decode | None = None) -> str:
    """Format bytes as `form`. Data without that format is shown as text, or as hex if it is no text."""
    if data is None:
        return "null"
    decode = value_decoder(form, decode_schema)
    if decode is not None:
        try:
            return json.dumps(decode(data), indent=2, ensure_ascii=False)
        except UndecodableError as error:
            return f"Not {FORMS[form]}: {error}\n\n{format_bytes(data, 'text')}"
    data = data[:SHOWN_BYTES_MAX]
    text = None if form == "hex" else decode_text(data)
    if text is None:
        return "\n".join(hex_dump(data))
    if form == "xml":
        return _indented_xml(text)
    return _indented_json(text) if form == "json" else text


def preview(data: bytes | None, form: str, length: int = 160, decode_schema: Decode | None = None) -> str:
    """Return at most `length` characters of the data on one line."""
    if data is None:
        return "null"
    decode = value_decoder(form, decode_schema)
    if decode is not None and len(data) <= _PREVIEW_BYTES_MAX:
        try:
            line = json.dumps(decode(data), ensure_ascii=False)
            return line[:length] + (" …" if len(line) > length else "")
        except UndecodableError:
            pass
    text = None if form == "hex" else decode_text(data[: 4 * length])
    if text is None:
        return data[: length // 3].hex(" ") + (" …" if len(data) > length // 3 else "")
    line = " ".join(text.split())
    return line[:length] + (" …" if len(line) > length or len(data) > 4 * length else "")


def _indented_json(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        # It is not JSON, or nested too deeply for the parser.
        return text


def _indented_xml(text: str) -> str:
    if "<!DOCTYPE" in text:
        return text
    try:
        lines = parseString(text).toprettyxml(indent="  ").splitlines()
    except Exception:
        # The parser raises errors of several libraries.
        return text
    declaration = 0 if text.lstrip().startswith("<?xml") else 1
    return "\n".join(line for line in lines[declaration:] if line.strip())


def _decoded(decode: Decode, data: bytes) -> Any:
    """Return the value as JSON can represent it. Raises UndecodableError."""
    if len(data) > SHOWN_BYTES_MAX:
        raise UndecodableError(f"it is larger than {SHOWN_BYTES_MAX >> 10} KiB")
    try:
        return _Converter().convert(decode(data), 0)
    except UndecodableError:
        raise
    except Exception as error:
        # The decoders of untrusted bytes raise errors of several libraries.
        raise UndecodableError(str(error) or type(error).__name__) from error


class _Converter:
    """Converts decoded values to those of JSON, and limits their number: a small CBOR value may refer to itself."""

    def __init__(self) -> None:
        self._parts = 0

    def convert(self, value: Any, depth: int) -> Any:
        self._parts += 1
        if self._parts > _PARTS_MAX or depth > _DEPTH_MAX:
            raise UndecodableError("it has too many parts")
        match value:
            case None | bool() | float() | str():
                return value
            case int():
                # JavaScript and many parsers of JSON have no larger integers.
                return value if abs(value) < 1 << 64 else str(value)
            case bytes() | bytearray():
                return {"base64": base64.b64encode(value).decode()}
            case Mapping():
                return {self._key(key): self.convert(item, depth + 1) for key, item in value.items()}
            case list() | tuple() | set() | frozenset():
                return [self.convert(item, depth + 1) for item in value]
        # Times, decimals, and the tags and extensions of the formats.
        return str(value)

    def _key(self, key: Any) -> str:
        return key if isinstance(key, str) else json.dumps(self.convert(key, 0), ensure_ascii=False)


def _decode_msgpack(data: bytes) -> Any:
    return _package("msgpack").unpackb(data, raw=False, strict_map_key=False, unicode_errors="replace")


def _decode_cbor(data: bytes) -> Any:
    return _package("cbor2").loads(data)


_DECODERS: Mapping[str, Decode] = {"msgpack": _decode_msgpack, "cbor": _decode_cbor}


def _without_registry(_: bytes) -> Any:
    raise UndecodableError("the console has no schema registry: start it with --schema-registry URL")


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise UndecodableError(f"a package is missing: pip install {name}") from None
