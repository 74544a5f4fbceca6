"""JSON values as structs: the options `value.format` = `json` and `value.schema`, decoded in the task.

All values of a batch are one text with a document a line, which Arrow parses at once. A value that is not a JSON object
or does not fit the schema is null as a whole. Only when Arrow refuses a text does Python look at each value, and drops
those that cannot fit; if the rest is refused as well, its halves are tried, and theirs, until what is refused is a
single value. Whatever Python drops Arrow would refuse too, so a value is the same whatever stands beside it.

No value can pass for two or hide another. Every line begins with `{` and ends with `}`, and JSON allows no `{` after a
`}` within a document, so that a document ends where its line does: as many rows as lines means a row for each line.
"""

import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

_BLANKS = " \t\r\n"
_NOTHING = "{}"
_ZONED = r"\d[T ]\d.*(Z|[+-]\d\d(:?\d\d)?)$"
_TOO_FINE = r"(\.\d{6})\d+"
_DATED = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def with_json_values(batch: Any, schema: StructType) -> Any:
    """The batch with its column `value` as structs of `schema`."""
    number = batch.schema.get_field_index("value")
    if number < 0:
        return batch
    type_ = to_arrow_type(schema, timezone="UTC")
    return batch.set_column(number, pa.field("value", type_), decode_json(batch.column(number), type_))


def decode_json(values: Any, type_: Any) -> Any:
    """A struct of `type_` for each of `values`, which are bytes; null for what is not one."""
    lines = pc.ascii_trim(_as_text(values), _BLANKS)
    try:
        return _parse(lines, type_)
    except pa.ArrowInvalid:
        kept = [line if line and _may_fit(line, type_) else None for line in lines.to_pylist()]
        return _parse_by_halves(pa.array(kept, pa.string()), type_)


def _parse_by_halves(lines: Any, type_: Any) -> Any:
    try:
        return _parse(lines, type_)
    except pa.ArrowInvalid:
        half = len(lines) // 2
        if not half:
            return pa.nulls(1, type_)
        return pa.concat_arrays([_parse_by_halves(lines[:half], type_), _parse_by_halves(lines[half:], type_)])


def _parse(lines: Any, type_: Any) -> Any:
    """Raises ArrowInvalid unless each line is null, no object, or one that fits."""
    if not len(lines):
        return pa.array([], type_)
    is_object = pc.and_(pc.starts_with(lines, "{"), pc.ends_with(lines, "}")).fill_null(False)
    objects = pc.if_else(is_object, lines, _NOTHING)
    text = pc.binary_join(pa.ListArray.from_arrays([0, len(objects)], objects), "\n")[0].as_buffer()
    table = pj.read_json(
        pa.BufferReader(text),
        # One block: one that ends within a document would be an error. A task has one core.
        read_options=pj.ReadOptions(use_threads=False, block_size=text.size + 1),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema([(field.name, _as_read(field.type)) for field in type_]),
            unexpected_field_behavior="ignore",
            newlines_in_values=True,
        ),
    )
    if table.num_rows != len(lines):
        raise pa.ArrowInvalid(f"{table.num_rows} documents in {len(lines)} lines")
    columns = [_fit(table.column(field.name).combine_chunks(), field.type) for field in type_]
    return pa.StructArray.from_arrays(columns, fields=list(type_), mask=pc.invert(is_object))


def _as_read(type_: Any) -> Any:
    """The type in which JSON has it: times and dates are texts."""
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _as_read(field.type)) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(pa.field("element", _as_read(type_.value_type)))
    return pa.string() if pa.types.is_temporal(type_) else type_


def _fit(array: Any, type_: Any) -> Any:
    """`array`, as it was read, in the type that is wanted. Raises ArrowInvalid."""
    if pa.types.is_struct(type_):
        columns = [_fit(array.field(number), field.type) for number, field in enumerate(type_)]
        return pa.StructArray.from_arrays(columns, fields=list(type_), mask=array.is_null())
    if pa.types.is_list(type_):
        elements = _fit(array.values, type_.value_type)
        return pa.ListArray.from_arrays(array.offsets, elements, type=type_, mask=array.is_null())
    if pa.types.is_timestamp(type_):
        return _read_times(array, type_)
    return array.cast(type_)


def _read_times(texts: Any, type_: Any) -> Any:
    """Times in ISO 8601, those without a zone in UTC; what is finer than a microsecond is cut off."""
    texts = pc.replace_substring_regex(texts, _TOO_FINE, r"\1")
    if type_.tz is None:
        return texts.cast(type_)
    is_zoned = pc.match_substring_regex(texts, _ZONED)
    nothing = pa.scalar(None, pa.string())
    zoned = pc.if_else(is_zoned, texts, nothing).cast(type_)
    local = pc.if_else(is_zoned, nothing, texts).cast(pa.timestamp(type_.unit))
    return pc.coalesce(zoned, pc.assume_timezone(local, type_.tz))


def _as_text(values: Any) -> Any:
    """The values as strings, null for those that are not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text_of(value) for value in values.to_pylist()], pa.string())


def _text_of(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _may_fit(line: str, type_: Any) -> bool:
    """False only for what Arrow is sure to refuse."""
    try:
        document = json.loads(line)
    except json.JSONDecodeError:
        # Both take NaN and Infinity for numbers, and Arrow also this one.
        return "Inf" in line
    except (ValueError, RecursionError):
        # Numbers of thousands of digits and the deepest nesting are Python's limits, not JSON's.
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
        return type(document) is str and _DATED.match(document) is not None
    if pa.types.is_floating(type_):
        return type(document) in (int, float)
    return type(document) is {pa.string(): str, pa.bool_(): bool}.get(type_, int)
