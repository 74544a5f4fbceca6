"""kio's idea of our messages: the same values in its own classes, encoded and decoded by its own codec.

kio has types where we have numbers: durations, times, error codes, UUIDs. Some of our numbers have no such value, so
`to_kio` takes the nearest thing that kio can hold, and `from_kio` says what that is here.
"""

import dataclasses
import importlib
import io
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional

from logbrook.protocol.schema import ZERO_UUID, Field, Message
from tests.unit.protocol.every_message import Case

_CODES = [int(code) for code in ErrorCode]
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION_MAX_MS = 2**46
_SECONDS_MAX = 2**37
_NO_TIME = -1


def kio_class(case: Case) -> Any:
    side = "request" if case.is_request else "response"
    module = importlib.import_module(f"kio.schema.{case.module}.v{case.version}.{side}")
    return getattr(module, case.message.__name__)


def kio_encode(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def kio_decode(entity: Any, data: bytes) -> Any:
    """Decode `data`, which must hold exactly one message of the class `entity`."""
    decoded, size = entity_reader(entity)(data, 0)
    assert size == len(data)
    return decoded


def to_kio(message: Message, entity: Any) -> Any:
    """Convert a message to the kio entity of class `entity`, with the nearest values that kio can represent."""
    fields = _by_kio_name(message)
    values = {}
    for kio_field in dataclasses.fields(entity):
        value = getattr(message, fields[kio_field.name].name)
        shape = classify_field(kio_field)
        if isinstance(shape, EntityField):
            values[kio_field.name] = _struct_to_kio(value, kio_field, shape.type_)
        elif isinstance(shape, EntityTupleField):
            values[kio_field.name] = None if value is None else tuple(to_kio(element, shape.type_) for element in value)
        else:
            kafka_type = str(kio_field.metadata["kafka_type"])
            if kafka_type == "datetime_i64" and value == _NO_TIME and not is_optional(kio_field):
                value = 0
            values[kio_field.name] = _mapped(
                value, shape.is_array, lambda element, kind=kafka_type: _to_kio(element, kind)
            )
    return entity(**values)


def from_kio(entity: Any, message: type[Message]) -> Message:
    """Convert a kio entity to our message."""
    made = message()
    fields = _by_kio_name(made)
    for kio_field in dataclasses.fields(entity):
        field, value = fields[kio_field.name], getattr(entity, kio_field.name)
        if not isinstance(field.kind, str):
            kind = field.kind
            is_default_tag = field.tag is not None and not field.array and value == kio_field.default
            ours = None if is_default_tag else _mapped(value, field.array, lambda element, k=kind: _struct(element, k))
        else:
            ours = _mapped(value, field.array, lambda element, k=field.kind: _from_kio(element, k))
        setattr(made, field.name, list(ours) if field.array and ours is not None else ours)
    return made


def _by_kio_name(message: Message) -> dict[str, Field]:
    """Return our fields by kio's names, which omit the unit."""
    names = {field.name: field for field in message.FIELDS}
    return names | {name.removesuffix("_ms"): field for name, field in names.items() if name.endswith("_ms")}


def _mapped(value: Any, is_array: bool, convert: Any) -> Any:
    if is_array:
        return None if value is None else tuple(convert(element) for element in value)
    return convert(value)


def _struct(value: Any, message: type[Message]) -> Message | None:
    return None if value is None else from_kio(value, message)


def _struct_to_kio(value: Message | None, kio_field: Any, entity: Any) -> Any:
    if value is None:
        return None if kio_field.default is dataclasses.MISSING else kio_field.default
    return to_kio(value, entity)


def _to_kio(value: Any, kafka_type: str) -> Any:
    if kafka_type == "error_code":
        return ErrorCode(_CODES[value % len(_CODES)])
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return (value if kafka_type == "timedelta_i32" else value % _DURATION_MAX_MS) * _MILLISECOND
    if kafka_type == "datetime_i64":
        return None if value == _NO_TIME else _EPOCH + timedelta(seconds=value % _SECONDS_MAX)
    if kafka_type == "uuid":
        return None if value == ZERO_UUID else UUID(bytes=value)
    return value


def _from_kio(value: Any, kind: str) -> Any:
    if value is None:
        return {"uuid": ZERO_UUID, "int64": _NO_TIME}.get(kind)
    if isinstance(value, ErrorCode):
        return int(value)
    if isinstance(value, timedelta):
        return value // _MILLISECOND
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MILLISECOND
    return value.bytes if isinstance(value, UUID) else value
