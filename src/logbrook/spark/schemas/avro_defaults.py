"""Default values of Avro fields, from their JSON form to values that Arrow converts."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from logbrook.spark.schemas.avro_schema import (
    AVRO_NULL,
    NO_DEFAULT,
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroType,
    AvroUnion,
)
from logbrook.spark.schemas.errors import InvalidSchemaError

_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "bytes": (str,),
    "string": (str,),
}


def default_value(type_: AvroType, default: Any) -> Any:
    """Convert the default of a field. Raises InvalidSchemaError if it does not fit the field's type."""
    try:
        return _convert(type_, default)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise InvalidSchemaError(f"the default {default!r} does not fit its field: {error}") from None


def _convert(type_: AvroType, default: Any) -> Any:  # noqa: PLR0911 - one per type
    match type_:
        case AvroPrimitive() if type_ == AVRO_NULL:
            return None
        case AvroPrimitive():
            return _convert_primitive(type_, default)
        case AvroFixed():
            raw = default.encode("latin-1")
            return raw if type_.decimal is None else _decimal(raw, type_.decimal[1])
        case AvroEnum():
            return str(default)
        case AvroArray():
            return [_convert(type_.items, element) for element in default]
        case AvroMap():
            return [(key, _convert(type_.values, value)) for key, value in default.items()]
        case AvroUnion():
            return _convert_union(type_, default)
        case AvroRecord():
            return {item.name: _convert(item.type, _member(default, item.name, item.default)) for item in type_.fields}


def _member(default: dict[str, Any], name: str, field_default: Any) -> Any:
    if name not in default and field_default is NO_DEFAULT:
        raise ValueError(f"it lacks {name!r}")
    return default.get(name, field_default)


def _convert_primitive(type_: AvroPrimitive, default: Any) -> Any:
    if type(default) not in _JSON_TYPES[type_.name]:
        raise ValueError(f"it is not {type_.name}")
    if type_.name == "bytes":
        raw = default.encode("latin-1")
        return raw if type_.decimal is None else _decimal(raw, type_.decimal[1])
    if type_.name == "int" and type_.logical == "date":
        return date(1970, 1, 1) + timedelta(days=default)
    is_local = (type_.logical or "").startswith("local-")
    epoch = datetime(1970, 1, 1, tzinfo=None if is_local else UTC)
    match (type_.logical or "").removeprefix("local-"):
        case "timestamp-millis" if type_.name == "long":
            return epoch + timedelta(milliseconds=default)
        case "timestamp-micros" if type_.name == "long":
            return epoch + timedelta(microseconds=default)
    return default


def _convert_union(type_: AvroUnion, default: Any) -> Any:
    """The default of a union has the type of its first branch; since Avro 1.12 of any."""
    if default is None and AVRO_NULL in type_.branches:
        return None
    members = type_.members
    for number, member in enumerate(members):
        try:
            value = _convert(member, default)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
        return value if len(members) == 1 else {f"member{number}": value}
    raise ValueError("it has the type of no branch")


def _decimal(raw: bytes, scale: int) -> Decimal:
    number = int.from_bytes(raw, "big", signed=True)
    digits = tuple(map(int, str(abs(number))))
    return Decimal((int(number < 0), digits, -scale))
