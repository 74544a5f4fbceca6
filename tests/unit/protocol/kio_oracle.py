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
from kio.serial._introspect import EntityField, EntityTupleField, classify_field

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
    """The message of the class `entity` that `data` holds and nothing else."""
    decoded, size = entity_reader(entity)(data, 0)
    assert size == len(data)
    return decoded


def to_kio(message: Message, entity: Any) -> Any:
    """The kio entity of class `entity` that says what `message` says, or nearly."""
    fields = _by_kio_name(message)
    values = {}
    for one in dataclasses.fields(entity):
        value = getattr(message, fields[one.name].name)
        shape = classify_field(one)
        if isinstance(shape, EntityField):
            values[one.name] = _struct_to_kio(value, one, shape.type_)
        elif isinstance(shape, EntityTupleField):
            values[one.name] = None if value is None else tuple(to_kio(each, shape.type_) for each in value)
        else:
            kafka_type = str(one.metadata["kafka_type"])
            values[one.name] = _mapped(value, shape.is_array, lambda each, kind=kafka_type: _to_kio(each, kind))
    return entity(**values)


def from_kio(entity: Any, message: type[Message]) -> Message:
    """Our message that says what the kio `entity` says."""
    made = message()
    fields = _by_kio_name(made)
    for one in dataclasses.fields(entity):
        field, value = fields[one.name], getattr(entity, one.name)
        if not isinstance(field.kind, str):
            kind = field.kind
            is_default_tag = field.tag is not None and not field.array and value == one.default
            ours = None if is_default_tag else _mapped(value, field.array, lambda each, k=kind: _struct(each, k))
        else:
            ours = _mapped(value, field.array, lambda each, k=field.kind: _from_kio(each, k))
        setattr(made, field.name, list(ours) if field.array and ours is not None else ours)
    return made


def _by_kio_name(message: Message) -> dict[str, Field]:
    """Our fields by the names that kio has for them: it leaves out the unit."""
    names = {field.name: field for field in message.FIELDS}
    return names | {name.removesuffix("_ms"): field for name, field in names.items() if name.endswith("_ms")}


def _mapped(value: Any, is_array: bool, convert: Any) -> Any:
    if is_array:
        return None if value is None else tuple(convert(each) for each in value)
    return convert(value)


def _struct(value: Any, message: type[Message]) -> Message | None:
    return None if value is None else from_kio(value, message)


def _struct_to_kio(value: Message | None, one: Any, entity: Any) -> Any:
    if value is None:
        return None if one.default is dataclasses.MISSING else one.default
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
