"""Schema resolution of Avro: from a writer's and the reader's schema to a program for the kernel `decode_avro`.

The rules are those of the Avro specification. A field of the reader that the writer lacks gets its default; a field
that only the writer has is skipped; int, long and float are promoted, and string and bytes exchanged; a symbol that the
reader's enum lacks becomes its default. Where a union has branches that cannot be read, only values of those branches
fail. Names of records count only where a union has several.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from logbrook.spark.schemas.avro_defaults import default_value
from logbrook.spark.schemas.avro_schema import (
    AVRO_NULL,
    NO_DEFAULT,
    AvroArray,
    AvroEnum,
    AvroField,
    AvroFixed,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroType,
    AvroUnion,
    spark_type,
)
from logbrook.spark.schemas.columns import ColumnNode, kind_of
from logbrook.spark.schemas.errors import IncompatibleSchemaError, InvalidSchemaError
from logbrook.spark.schemas.kernels import avro as op
from logbrook.spark.schemas.kernels.nodes import BINARY, LIST, NO_LIST, STRUCT

_INSTRUCTIONS_MAX = 10_000
_INTEGER_BITS = {"int": 32, "long": 64}
_REAL_BYTES = {"float": 4, "double": 8}
_FIXED_SIZES = {"boolean": 1, **_REAL_BYTES}
# Types that a reader's type may be read from, besides itself.
_PROMOTIONS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "string": {"bytes"},
    "bytes": {"string"},
}
_US_PER_MS = 1000


@dataclass(frozen=True, slots=True)
class Resolution:
    """Decoder of one writer's schema: the program, and arrays of one value for fields without input."""

    program: op.AvroProgram
    defaults: dict[int, Any]


class AvroReader:
    """The reader's schema as a tree of columns. Raises InvalidSchemaError if it has no equivalent in Spark."""

    def __init__(self, type_: AvroType) -> None:
        self._type = type_
        self.root = _ColumnNumbering().add(type_, to_arrow_type(spark_type(type_), timezone="UTC"), NO_LIST)

    def resolve(self, writer: AvroType) -> Resolution:
        """Return how to decode values of `writer`. Raises IncompatibleSchemaError or InvalidSchemaError."""
        compiler = _Compiler()
        compiler.read(writer, self._type, self.root)
        compiler.emit(op.END)
        program = op.AvroProgram(
            np.array(compiler.instructions, np.int64),
            np.array(compiler.tables or [0], np.int64),
            np.zeros(2 * op.LIST_DEPTH_MAX, np.int64),
        )
        return Resolution(program, compiler.defaults)


class _ColumnNumbering:
    """Numbers the columns of a schema in pre-order."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, type_: AvroType, arrow_type: Any, level: int) -> ColumnNode:  # noqa: PLR0911 - one per type
        if isinstance(type_, AvroUnion) and len(type_.members) == 1:
            return self.add(type_.members[0], arrow_type, level)
        index = self._next()
        match type_:
            case AvroRecord():
                types = [item.type for item in type_.fields]
                return ColumnNode(index, STRUCT, level, arrow_type, self._fields(types, arrow_type, level))
            case AvroUnion() if type_.members:
                return ColumnNode(index, STRUCT, level, arrow_type, self._fields(type_.members, arrow_type, level))
            case AvroArray():
                element = self.add(type_.items, arrow_type.value_type, index)
                return ColumnNode(index, LIST, level, arrow_type, (element,))
            case AvroMap():
                key = ColumnNode(self._next(), BINARY, index, pa.string())
                value = self.add(type_.values, arrow_type.item_type, index)
                return ColumnNode(index, LIST, level, arrow_type, (key, value))
            case AvroEnum():
                return ColumnNode(index, 4, level, arrow_type, symbols=type_.symbols)
        return ColumnNode(index, kind_of(arrow_type), level, arrow_type)

    def _fields(
        self, types: list[AvroType] | tuple[AvroType, ...], arrow_type: Any, level: int
    ) -> tuple[ColumnNode, ...]:
        return tuple(self.add(type_, arrow_type.field(number).type, level) for number, type_ in enumerate(types))

    def _next(self) -> int:
        self._count += 1
        return self._count - 1


class _Compiler:
    """Emits the instructions that read one value."""

    def __init__(self) -> None:
        self.instructions: list[list[int]] = []
        self.tables: list[int] = []
        self.defaults: dict[int, Any] = {}
        self._open_lists = 0
        self._open_branches = 0

    def emit(self, operation: int, node: int = op.NO_NODE, first: int = 0, second: int = 0) -> int:
        """Append an instruction and return its number."""
        if len(self.instructions) >= _INSTRUCTIONS_MAX:
            raise InvalidSchemaError(f"the schema has more than {_INSTRUCTIONS_MAX} fields, or is recursive")
        self.instructions.append([operation, node, first, second])
        return len(self.instructions) - 1

    def read(self, writer: AvroType, reader: AvroType, node: ColumnNode) -> None:
        """Emit the instructions that read a value of `writer` into `node`. Raises IncompatibleSchemaError."""
        if isinstance(writer, AvroUnion):
            self._read_union(writer, reader, node)
            return
        match writer, reader:
            case _, AvroUnion():
                self._read_into_union(writer, reader, node)
            case AvroRecord(), AvroRecord():
                self._read_record(writer, reader, node)
            case AvroArray(), AvroArray():
                with self._list(node.index, writer.items):
                    self.read(writer.items, reader.items, node.children[0])
            case AvroMap(), AvroMap():
                with self._list(node.index):
                    self.emit(op.TEXT, node.children[0].index, op.LENGTH_PREFIXED)
                    self.read(writer.values, reader.values, node.children[1])
            case AvroEnum(), AvroEnum():
                self._read_enum(writer, reader, node)
            case AvroFixed(), AvroFixed() if writer.size == reader.size and writer.decimal == reader.decimal:
                self.emit(op.FIXED if reader.decimal is None else op.DECIMAL, node.index, writer.size)
            case AvroPrimitive(), AvroPrimitive():
                self._read_primitive(writer, reader, node)
            case _:
                raise _mismatch(writer, reader)

    def _read_union(self, writer: AvroUnion, reader: AvroType, node: ColumnNode) -> None:
        branches = writer.branches
        if len(branches) == 2 and AVRO_NULL in branches and _accepts_null(reader):
            null_index = branches.index(AVRO_NULL)
            choice = self.emit(op.NULLABLE, node.index, null_index)
            self.read(branches[1 - null_index], reader, node)
            self.instructions[choice][3] = len(self.instructions)
            return
        errors = []
        with self._branches(len(branches)) as begin_branch:
            for branch in branches:
                begin_branch()
                start = len(self.instructions)
                try:
                    self.read(branch, reader, node)
                except IncompatibleSchemaError as error:
                    errors.append(error)
                    del self.instructions[start:]
                    self.emit(op.UNREADABLE)
        if len(errors) == len(branches):
            raise errors[-1] if errors else _mismatch(writer, reader)

    def _read_into_union(self, writer: AvroType, reader: AvroUnion, node: ColumnNode) -> None:
        members = reader.members
        if writer == AVRO_NULL:
            if AVRO_NULL not in reader.branches:
                raise _mismatch(writer, reader)
            self.emit(op.NULL, node.index)
            return
        if len(members) == 1:
            self.read(writer, members[0], node)
            return
        chosen = _best_member(writer, members)
        if chosen is None:
            raise _mismatch(writer, reader)
        self.emit(op.STRUCT_VALUE, node.index)
        for number, child in enumerate(node.children):
            if number == chosen:
                self.read(writer, members[number], child)
            else:
                self.emit(op.NULL, child.index)

    def _read_record(self, writer: AvroRecord, reader: AvroRecord, node: ColumnNode) -> None:
        self.emit(op.STRUCT_VALUE, node.index)
        missing = dict(enumerate(reader.fields))
        for item in writer.fields:
            number = next((number for number, target in missing.items() if target.name == item.name), None)
            if number is None:
                number = next((number for number, target in missing.items() if item.name in target.aliases), None)
            if number is None:
                self.skip(item.type)
                continue
            target = missing.pop(number)
            try:
                self.read(item.type, target.type, node.children[number])
            except IncompatibleSchemaError as error:
                raise IncompatibleSchemaError(f"{item.name}: {error}") from None
        for number, target in missing.items():
            self._read_default(target, node.children[number])

    def _read_default(self, target: AvroField, node: ColumnNode) -> None:
        if target.default is NO_DEFAULT:
            raise IncompatibleSchemaError(f"{target.name}: the writer lacks it, and the reader has no default")
        if target.default is None and _accepts_null(target.type):
            self.emit(op.NULL, node.index)
        elif self._open_branches:
            # Other branches may have values for the same column.
            raise IncompatibleSchemaError(f"{target.name}: a default other than null is not supported within a union")
        else:
            self.defaults[node.index] = pa.array([default_value(target.type, target.default)], node.arrow_type)

    def _read_enum(self, writer: AvroEnum, reader: AvroEnum, node: ColumnNode) -> None:
        positions = {symbol: number for number, symbol in enumerate(reader.symbols)}
        default = positions.get(reader.default or "", -1)
        self.emit(op.ENUM, node.index, len(self.tables), len(writer.symbols))
        self.tables += [positions.get(symbol, default) for symbol in writer.symbols]

    def _read_primitive(self, writer: AvroPrimitive, reader: AvroPrimitive, node: ColumnNode) -> None:
        name = writer.name
        if name != reader.name and name not in _PROMOTIONS.get(reader.name, ()):
            raise _mismatch(writer, reader)
        match reader.name:
            case "null":
                self.emit(op.NULL, node.index)
            case "boolean":
                self.emit(op.BOOLEAN, node.index, 1)
            case "int" | "long":
                self.emit(op.INTEGER, node.index, _INTEGER_BITS[name], _factor(writer, reader, node))
            case "float" | "double" if name in _INTEGER_BITS:
                self.emit(op.INTEGER_AS_REAL, node.index, _INTEGER_BITS[name])
            case "float" | "double":
                self.emit(op.REAL, node.index, _REAL_BYTES[name])
            case "string":
                self.emit(op.TEXT, node.index, op.LENGTH_PREFIXED)
            case "bytes" if reader.decimal is not None:
                if writer.decimal is None or writer.decimal[1] != reader.decimal[1]:
                    raise IncompatibleSchemaError("decimals of another scale")
                self.emit(op.DECIMAL, node.index, op.LENGTH_PREFIXED)
            case _:
                self.emit(op.FIXED, node.index, op.LENGTH_PREFIXED)

    def skip(self, writer: AvroType) -> None:  # noqa: C901 - one case per type
        """Emit the instructions that skip a value."""
        match writer:
            case AvroPrimitive("null"):
                pass
            case AvroPrimitive("int" | "long"):
                self.emit(op.SKIP_VARINT, first=_INTEGER_BITS[writer.name])
            case AvroPrimitive():
                self.emit(op.SKIP_BYTES, first=_FIXED_SIZES.get(writer.name, op.LENGTH_PREFIXED))
            case AvroFixed():
                self.emit(op.SKIP_BYTES, first=writer.size)
            case AvroEnum():
                self.emit(op.SKIP_VARINT, first=32)
            case AvroRecord():
                for item in writer.fields:
                    self.skip(item.type)
            case AvroArray():
                with self._list(op.NO_NODE, writer.items):
                    self.skip(writer.items)
            case AvroMap():
                with self._list(op.NO_NODE):
                    self.emit(op.SKIP_BYTES, first=op.LENGTH_PREFIXED)
                    self.skip(writer.values)
            case AvroUnion():
                with self._branches(len(writer.branches)) as begin_branch:
                    for branch in writer.branches:
                        begin_branch()
                        self.skip(branch)

    @contextmanager
    def _list(self, node: int, items: AvroType | None = None) -> Iterator[None]:
        """Emit the loop around the instructions of an element. `items` of an array must not be empty."""
        if items is not None and not _has_bytes(items, ()):
            # A few bytes could claim billions of such elements.
            raise InvalidSchemaError("an array has elements without any bytes")
        if self._open_lists == op.LIST_DEPTH_MAX:
            raise InvalidSchemaError(f"arrays and maps are nested more than {op.LIST_DEPTH_MAX} deep, or recursive")
        begin = self.emit(op.BEGIN_LIST, node)
        self._open_lists += 1
        yield
        self._open_lists -= 1
        self.emit(op.NEXT_ELEMENT, node)
        self.instructions[begin][2] = len(self.instructions)

    @contextmanager
    def _branches(self, count: int) -> Iterator[Any]:
        """Emit the choice of a union's branch; the caller calls the given function before each branch."""
        offset = len(self.tables)
        self.tables += [0] * count
        self.emit(op.BRANCH, first=offset, second=count)
        jumps: list[int] = []

        def begin_branch() -> None:
            if jumps:
                jumps[-1] = self.emit(op.JUMP)
            self.tables[offset + len(jumps)] = len(self.instructions)
            jumps.append(-1)

        self._open_branches += 1
        yield begin_branch
        self._open_branches -= 1
        # The last branch needs no jump.
        for jump in jumps[:-1]:
            self.instructions[jump][2] = len(self.instructions)


def _mismatch(writer: AvroType, reader: AvroType) -> IncompatibleSchemaError:
    return IncompatibleSchemaError(f"{_name_of(writer)} cannot be read as {_name_of(reader)}")


def _name_of(type_: AvroType) -> str:
    match type_:
        case AvroPrimitive() | AvroFixed() | AvroEnum() | AvroRecord():
            return type_.name
        case AvroUnion():
            return " or ".join(map(_name_of, type_.branches)) or "an empty union"
    return "an array" if isinstance(type_, AvroArray) else "a map"


def _accepts_null(reader: AvroType) -> bool:
    return reader == AVRO_NULL or (isinstance(reader, AvroUnion) and AVRO_NULL in reader.branches)


def _best_member(writer: AvroType, members: tuple[AvroType, ...]) -> int | None:
    """Return the first member of the same type and name, else of the same type, else one it is promoted to."""
    same_type = [number for number, member in enumerate(members) if type(member) is type(writer)]
    if isinstance(writer, AvroPrimitive):
        names = {number: members[number].name for number in same_type}  # type: ignore[union-attr]
        exact = [number for number, name in names.items() if name == writer.name]
        promoted = [number for number, name in names.items() if writer.name in _PROMOTIONS.get(name, ())]
        return next(iter(exact + promoted), None)
    if isinstance(writer, AvroRecord | AvroEnum | AvroFixed):
        name = writer.name.rpartition(".")[2]
        named = [number for number in same_type if _name_of(members[number]).rpartition(".")[2] == name]
        return next(iter(named + same_type), None)
    return next(iter(same_type), None)


def _factor(writer: AvroPrimitive, reader: AvroPrimitive, node: ColumnNode) -> int:
    """Return the factor from the writer's unit of time to microseconds; 1 for other numbers."""
    if not pa.types.is_timestamp(node.arrow_type):
        return 1
    logical = writer.logical if "timestamp-" in (writer.logical or "") else reader.logical
    return _US_PER_MS if (logical or "").endswith("millis") else 1


def _has_bytes(type_: AvroType, above: tuple[str, ...]) -> bool:
    match type_:
        case AvroPrimitive():
            return type_ != AVRO_NULL
        case AvroFixed():
            return type_.size > 0
        case AvroRecord():
            inner = (*above, type_.name)
            return type_.name not in above and any(_has_bytes(item.type, inner) for item in type_.fields)
    return True
