"""Avro schemas: parsing of their JSON, and the Spark types of their values.

Types follow Spark's own from_avro: logical types become dates, timestamps and decimals; a union of null and another
type is that type, of int and long a long, of float and double a double, and any other union a struct with the fields
member0, member1 and so on, of which at most one is not null. Times of day stay numbers and UUIDs strings. Every field
is nullable, because a value that does not decode is null.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from logbrook.spark.schemas.errors import InvalidSchemaError

_PRIMITIVES: dict[str, DataType] = {
    "null": NullType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
# By the type they annotate. On any other type a logical type is ignored, as the specification requires.
_LOGICAL_TYPES: dict[tuple[str, str], DataType] = {
    ("int", "date"): DateType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-millis"): TimestampNTZType(),
    ("long", "local-timestamp-micros"): TimestampNTZType(),
}
DECIMAL_PRECISION_MAX = 38
NO_DEFAULT = object()


@dataclass(frozen=True, slots=True)
class AvroPrimitive:
    name: str
    logical: str | None = None
    decimal: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class AvroFixed:
    name: str
    size: int
    decimal: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class AvroEnum:
    name: str
    symbols: tuple[str, ...]
    default: str | None = None


@dataclass(frozen=True, slots=True)
class AvroArray:
    items: "AvroType"


@dataclass(frozen=True, slots=True)
class AvroMap:
    values: "AvroType"


@dataclass(frozen=True, slots=True)
class AvroUnion:
    branches: tuple["AvroType", ...]

    @property
    def members(self) -> tuple["AvroType", ...]:
        """The branches without null; int and long, or float and double, count as the larger of them."""
        members = tuple(branch for branch in self.branches if branch != AVRO_NULL)
        names = {member.name if isinstance(member, AvroPrimitive) else "" for member in members}
        if len(members) == 2 and names in ({"int", "long"}, {"float", "double"}):
            return (AvroPrimitive("long" if "long" in names else "double"),)
        return members


@dataclass(slots=True, eq=False)
class AvroRecord:
    """A record. Its fields are set after its creation, because they may refer to it by its name."""

    name: str
    fields: tuple["AvroField", ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class AvroField:
    name: str
    type: "AvroType"
    aliases: tuple[str, ...] = ()
    default: Any = NO_DEFAULT


AvroType: TypeAlias = AvroPrimitive | AvroFixed | AvroEnum | AvroArray | AvroMap | AvroUnion | AvroRecord

AVRO_NULL = AvroPrimitive("null")


def parse_avro(text: str, references: Iterable[str] = ()) -> AvroType:
    """Parse a schema; `references` are the schemas whose types it uses by name. Raises InvalidSchemaError."""
    parser = _AvroParser()
    for reference in references:
        parser.parse(reference)
    return parser.parse(text)


def spark_type(type_: AvroType) -> DataType:
    """Return the type of a column. Raises InvalidSchemaError for a recursive type."""
    return _spark_type(type_, ())


def _spark_type(type_: AvroType, above: tuple[str, ...]) -> DataType:  # noqa: PLR0911 - one per type
    match type_:
        case AvroPrimitive() | AvroFixed() if type_.decimal is not None:
            return DecimalType(*type_.decimal)
        case AvroPrimitive():
            return _LOGICAL_TYPES.get((type_.name, type_.logical or ""), _PRIMITIVES[type_.name])
        case AvroFixed():
            return BinaryType()
        case AvroEnum():
            return StringType()
        case AvroArray():
            return ArrayType(_spark_type(type_.items, above))
        case AvroMap():
            return MapType(StringType(), _spark_type(type_.values, above))
        case AvroUnion():
            return _union_type(type_.members, above)
        case AvroRecord():
            if type_.name in above:
                raise InvalidSchemaError(f"{type_.name} contains itself; a column cannot be recursive")
            inner = (*above, type_.name)
            return StructType([StructField(item.name, _spark_type(item.type, inner)) for item in type_.fields])


def _union_type(members: tuple[AvroType, ...], above: tuple[str, ...]) -> DataType:
    if not members:
        return NullType()
    if len(members) == 1:
        return _spark_type(members[0], above)
    types = [_spark_type(member, above) for member in members]
    return StructType([StructField(f"member{index}", type_) for index, type_ in enumerate(types)])


class _AvroParser:
    """Parses schemas that share the names they define."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def parse(self, text: str) -> AvroType:
        try:
            document = json.loads(text)
        except ValueError as error:
            raise InvalidSchemaError(f"the Avro schema is not JSON: {error}") from None
        try:
            return self._type(document, "")
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidSchemaError(f"the Avro schema is malformed: {type(error).__name__}: {error}") from None

    def _type(self, document: Any, namespace: str) -> AvroType:  # noqa: PLR0911 - one per type
        if isinstance(document, str):
            return self._by_name(document, namespace)
        if isinstance(document, list):
            return AvroUnion(tuple(self._type(branch, namespace) for branch in document))
        kind = document["type"]
        if isinstance(kind, dict | list):
            return self._type(kind, namespace)
        match kind:
            case "array":
                return AvroArray(self._type(document["items"], namespace))
            case "map":
                return AvroMap(self._type(document["values"], namespace))
            case "record" | "error":
                return self._record(document, namespace)
            case "enum":
                enum = AvroEnum(_full_name(document, namespace), tuple(document["symbols"]), document.get("default"))
                return self._define(enum)
            case "fixed":
                decimal = _decimal_of(document)
                return self._define(AvroFixed(_full_name(document, namespace), int(document["size"]), decimal))
        return self._annotated(self._by_name(kind, namespace), document)

    def _annotated(self, type_: AvroType, document: Mapping[str, Any]) -> AvroType:
        if not isinstance(type_, AvroPrimitive):
            return type_
        decimal = _decimal_of(document) if type_.name == "bytes" else None
        return AvroPrimitive(type_.name, document.get("logicalType"), decimal)

    def _by_name(self, name: str, namespace: str) -> AvroType:
        if name in _PRIMITIVES:
            return AvroPrimitive(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        type_ = self._named.get(full) or self._named.get(name)
        if type_ is None:
            raise InvalidSchemaError(f"the Avro schema uses {name!r}, which it does not define")
        return type_

    def _define(self, type_: AvroFixed | AvroEnum) -> AvroType:
        self._named[type_.name] = type_
        return type_

    def _record(self, document: Mapping[str, Any], namespace: str) -> AvroRecord:
        record = AvroRecord(_full_name(document, namespace))
        self._named[record.name] = record
        inner = record.name.rpartition(".")[0]
        record.fields = tuple(
            AvroField(
                item["name"],
                self._type(item["type"], inner),
                tuple(item.get("aliases", ())),
                item.get("default", NO_DEFAULT),
            )
            for item in document["fields"]
        )
        names = [item.name for item in record.fields]
        if len({name.lower() for name in names}) != len(names):
            raise InvalidSchemaError(f"{record.name} has two fields of one name; Spark ignores the letter case")
        return record


def _full_name(document: Mapping[str, Any], namespace: str) -> str:
    name = str(document["name"])
    space = document.get("namespace", namespace)
    return name if "." in name or not space else f"{space}.{name}"


def _decimal_of(document: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return precision and scale, or None; an invalid decimal is ignored, as the specification requires."""
    if document.get("logicalType") != "decimal":
        return None
    precision, scale = document.get("precision"), document.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return None
    return (precision, scale) if 1 <= precision <= DECIMAL_PRECISION_MAX and 0 <= scale <= precision else None
