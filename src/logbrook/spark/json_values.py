"""Decoding of JSON values into structs in the task, for `value.format=json`.

The values of a batch are joined into one text, a document per line, that Arrow's JSON reader parses in one call. A
value that is not a JSON object or does not fit the schema becomes null as a whole. If Arrow rejects the text, Python
checks each value and drops those that cannot fit; if Arrow still rejects the rest, it is bisected until the rejected
part is a single value. Python drops only values that Arrow would reject, so a value decodes the same whatever its
neighbours are.

Rows and lines correspond: every line begins with `{` and ends with `}`, and within a JSON document no `{` can follow
the final `}`, so a document cannot extend over two lines. As many rows as lines therefore means one row per line.
"""

import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

_WHITESPACE = " \t\r\n"
_EMPTY_OBJECT = "{}"
_WITH_ZONE = r"\d[T ]\d.*(Z|[+-]\d\d(:?\d\d)?)$"
_BEYOND_MICROSECONDS = r"(\.\d{6})\d+"
_DATE_PREFIX = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def with_json_values(batch: Any, schema: StructType) -> Any:
    """Return `batch` with its column `value`, if it has one, decoded to structs of `schema`."""
    index = batch.schema.get_field_index("value")
    if index < 0:
        return batch
    type_ = to_arrow_type(schema, timezone="UTC")
    return batch.set_column(index, pa.field("value", type_), decode_json(batch.column(index), type_))


def decode_json(values: Any, type_: Any) -> Any:
    """Decode an array of bytes to structs of `type_`; null for a value that is not one."""
    lines = pc.ascii_trim(_as_text(values), _WHITESPACE)
    try:
        return _parse(lines, type_)
    except pa.ArrowInvalid:
        kept = [line if line and _may_fit(line, type_) else None for line in lines.to_pylist()]
        return _parse_bisecting(pa.array(kept, pa.string()), type_)


def _parse_bisecting(lines: Any, type_: Any) -> Any:
    try:
        return _parse(lines, type_)
    except pa.ArrowInvalid:
        half = len(lines) // 2
        if not half:
            return pa.nulls(1, type_)
        return pa.concat_arrays([_parse_bisecting(lines[:half], type_), _parse_bisecting(lines[half:], type_)])


def _parse(lines: Any, type_: Any) -> Any:
    """Parse lines that are null, not an object, or an object that fits; raises ArrowInvalid for any other."""
    if not len(lines):
        return pa.array([], type_)
    is_object = pc.and_(pc.starts_with(lines, "{"), pc.ends_with(lines, "}")).fill_null(False)
    objects = pc.if_else(is_object, lines, _EMPTY_OBJECT)
    text = pc.binary_join(pa.ListArray.from_arrays([0, len(objects)], objects), "\n")[0].as_buffer()
    table = pj.read_json(
        pa.BufferReader(text),
        # One block, because a block that ends within a document is an error. No threads: a task has one core.
        read_options=pj.ReadOptions(use_threads=False, block_size=text.size + 1),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema([(field.name, _json_type(field.type)) for field in type_]),
            unexpected_field_behavior="ignore",
            newlines_in_values=True,
        ),
    )
    if table.num_rows != len(lines):
        raise pa.ArrowInvalid(f"{table.num_rows} documents in {len(lines)} lines")
    columns = [_convert(table.column(field.name).combine_chunks(), field.type) for field in type_]
    return pa.StructArray.from_arrays(columns, fields=list(type_), mask=pc.invert(is_object))


def _json_type(type_: Any) -> Any:
    """Return the type to read from JSON: timestamps and dates are strings there."""
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _json_type(field.type)) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(pa.field("element", _json_type(type_.value_type)))
    return pa.string() if pa.types.is_temporal(type_) else type_


def _convert(array: Any, type_: Any) -> Any:
    """Convert an array read as `_json_type(type_)` to `type_`. Raises ArrowInvalid."""
    if pa.types.is_struct(type_):
        columns = [_convert(array.field(number), field.type) for number, field in enumerate(type_)]
        return pa.StructArray.from_arrays(columns, fields=list(type_), mask=array.is_null())
    if pa.types.is_list(type_):
        elements = _convert(array.values, type_.value_type)
        return pa.ListArray.from_arrays(array.offsets, elements, type=type_, mask=array.is_null())
    if pa.types.is_timestamp(type_):
        return _parse_timestamps(array, type_)
    return array.cast(type_)


def _parse_timestamps(texts: Any, type_: Any) -> Any:
    """Parse ISO 8601 timestamps; those without a zone are UTC. Digits below a microsecond are truncated."""
    texts = pc.replace_substring_regex(texts, _BEYOND_MICROSECONDS, r"\1")
    if type_.tz is None:
        return texts.cast(type_)
    is_zoned = pc.match_substring_regex(texts, _WITH_ZONE)
    null = pa.scalar(None, pa.string())
    zoned = pc.if_else(is_zoned, texts, null).cast(type_)
    local = pc.if_else(is_zoned, null, texts).cast(pa.timestamp(type_.unit))
    return pc.coalesce(zoned, pc.assume_timezone(local, type_.tz))


def _as_text(values: Any) -> Any:
    """Return the values as strings; null for those that are not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_decoded(value) for value in values.to_pylist()], pa.string())


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _may_fit(line: str, type_: Any) -> bool:
    """Return False only for values that Arrow is certain to reject."""
    try:
        document = json.loads(line)
    except json.JSONDecodeError:
        # Both parsers accept NaN and Infinity as numbers; Arrow also accepts Inf.
        return "Inf" in line
    except (ValueError, RecursionError):
        # Limits of Python on digits and nesting, which JSON does not have.
        return True
    return _fits(document, type_)


def _fits(document: Any, type_: Any) -> bool:
    if document is None:
        return True
    if pa.types.is_struct(type_):
        return type(document) is dict and all(_fits(document.get(field.name), field.type) for field in type_)
    if pa.types.is_list(type_):
        return type(document) is list and all(_fits(element, type_.value_type) for element in document)
    if pa.types.is_temporal(type_):
        return type(document) is str and _DATE_PREFIX.match(document) is not None
    if pa.types.is_floating(type_):
        return type(document) in (int, float)
    return type(document) is {pa.string(): str, pa.bool_(): bool}.get(type_, int)
