"""Messages of Google's library with fields of every type, their schema and the rows that they should be."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import strategies as st

SCALARS: tuple[str, ...] = (
    "int32",
    "int64",
    "uint32",
    "uint64",
    "sint32",
    "sint64",
    "fixed32",
    "fixed64",
    "sfixed32",
    "sfixed64",
)
SCALARS += ("bool", "float", "double", "string", "bytes")
SIGNED = {"int32": 32, "sint32": 32, "sfixed32": 32, "int64": 64, "sint64": 64, "sfixed64": 64}
UNSIGNED = {"uint32": 32, "fixed32": 32, "uint64": 64, "fixed64": 64}
TYPES = descriptor_pb2.FieldDescriptorProto

PROTO = """
// A comment, with "quotes" and { braces.
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
option java_package = "x.y";

message All {
  reserved 900 to 999; reserved "old";
  option (custom) = { a: 1 };
  SCALAR_FIELDS
  enum Colour { option allow_alias = true; RED = 0; CRIMSON = 0; GREEN = 5; BLUE = -1; }
  message Inner { int32 a = 1; optional string b = 2; repeated Inner2 deep = 3; }
  message Inner2 { repeated sint64 n = 1 [packed = true]; Colour c = 2; }
  Colour colour = 100;
  optional Colour maybe_colour = 101;
  Inner inner = 102;
  repeated Inner inners = 103;
  map<string, int64> counts = 104;
  map<int32, Inner> by_number = 105;
  google.protobuf.Timestamp at = 106 [deprecated = true, (x).y = "]"];
  oneof choice { string text = 107; int32 number = 108; }
  repeated google.protobuf.Timestamp times = 109;
  repeated string words = 110;
}
/* The second
   message. */
message Other { .shop.All all = 1; message Nested { int32 x = 1; } }
service Ignored { rpc Call (All) returns (Other) {} }
""".replace(
    "SCALAR_FIELDS",
    "\n  ".join(
        f"{type_} f{number} = {number};\n  repeated {type_} r{number} = {number + 20};\n"
        f"  optional {type_} o{number} = {number + 40};"
        for number, type_ in enumerate(SCALARS, 1)
    ),
)


def field(name: str, number: int, type_: str, label: str = "", type_name: str = "", **more: Any) -> Any:
    labels = {"": TYPES.LABEL_OPTIONAL, "optional": TYPES.LABEL_OPTIONAL, "repeated": TYPES.LABEL_REPEATED}
    kind = getattr(TYPES, f"TYPE_{type_.upper()}")
    made = TYPES(name=name, number=number, type=kind, label=labels[label], **more)
    if type_name:
        made.type_name = type_name
    made.proto3_optional = label == "optional"
    return made


def message(name: str, *fields: Any, nested: Any = (), enums: Any = ()) -> Any:
    made = descriptor_pb2.DescriptorProto(name=name, nested_type=nested, enum_type=enums)
    for item in fields:
        if item.proto3_optional:
            item.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{item.name}")
        made.field.append(item)
    return made


def entry(name: str, key: str, value: Any) -> Any:
    made = message(name, field("key", 1, key), value)
    made.options.map_entry = True
    return made


def all_class() -> Any:
    """The class of `All` in PROTO, made of descriptors: protoc is not needed."""
    stamp, colour, inner = ".google.protobuf.Timestamp", ".shop.All.Colour", ".shop.All.Inner"
    fields = []
    for number, type_ in enumerate(SCALARS, 1):
        fields += [field(f"f{number}", number, type_), field(f"r{number}", number + 20, type_, "repeated")]
        fields.append(field(f"o{number}", number + 40, type_, "optional"))
    enum = descriptor_pb2.EnumDescriptorProto(name="Colour")
    enum.options.allow_alias = True
    for name, number in (("RED", 0), ("CRIMSON", 0), ("GREEN", 5), ("BLUE", -1)):
        enum.value.add(name=name, number=number)
    nested = [
        message(
            "Inner",
            field("a", 1, "int32"),
            field("b", 2, "string", "optional"),
            field("deep", 3, "message", "repeated", ".shop.All.Inner2"),
        ),
        message("Inner2", field("n", 1, "sint64", "repeated"), field("c", 2, "enum", "", colour)),
        entry("CountsEntry", "string", field("value", 2, "int64")),
        entry("ByNumberEntry", "int32", field("value", 2, "message", "", inner)),
    ]
    whole = message(
        "All",
        field("text", 107, "string", oneof_index=0),
        field("number", 108, "int32", oneof_index=0),
        nested=nested,
        enums=[enum],
    )
    whole.oneof_decl.add(name="choice")
    others = [
        field("colour", 100, "enum", "", colour),
        field("maybe_colour", 101, "enum", "optional", colour),
        field("inner", 102, "message", "", inner),
        field("inners", 103, "message", "repeated", inner),
        field("counts", 104, "message", "repeated", ".shop.All.CountsEntry"),
        field("by_number", 105, "message", "repeated", ".shop.All.ByNumberEntry"),
        field("at", 106, "message", "", stamp),
        field("times", 109, "message", "repeated", stamp),
        field("words", 110, "string", "repeated"),
    ]
    for item in fields + others:
        if item.proto3_optional:
            item.oneof_index = len(whole.oneof_decl)
            whole.oneof_decl.add(name=f"_{item.name}")
        whole.field.append(item)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    file.message_type.append(whole)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.All"))


ALL = all_class()


def as_time(stamp: Any) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)


def colour(number: int) -> str | None:
    return {0: "RED", 5: "GREEN", -1: "BLUE"}.get(number)


def as_inner(inner: Any) -> dict[str, Any]:
    deep = [{"n": list(item.n), "c": colour(item.c)} for item in inner.deep]
    return {"a": inner.a, "b": inner.b if inner.HasField("b") else None, "deep": deep}


def as_row(value: Any) -> dict[str, Any]:
    """The row that a message of Google's library should be."""
    row: dict[str, Any] = {}
    for number, type_ in enumerate(SCALARS, 1):
        kind = Decimal if type_ in ("uint64", "fixed64") else lambda plain: plain
        row[f"f{number}"] = kind(getattr(value, f"f{number}"))
        row[f"r{number}"] = [kind(element) for element in getattr(value, f"r{number}")]
        row[f"o{number}"] = kind(getattr(value, f"o{number}")) if value.HasField(f"o{number}") else None
    return row | {
        "colour": colour(value.colour),
        "maybe_colour": colour(value.maybe_colour) if value.HasField("maybe_colour") else None,
        "inner": as_inner(value.inner) if value.HasField("inner") else None,
        "inners": [as_inner(inner) for inner in value.inners],
        "counts": sorted(value.counts.items()),
        "by_number": [(number, as_inner(value.by_number[number])) for number in sorted(value.by_number)],
        "at": as_time(value.at) if value.HasField("at") else None,
        "text": value.text if value.HasField("text") else None,
        "number": value.number if value.HasField("number") else None,
        "times": [as_time(stamp) for stamp in value.times],
        "words": list(value.words),
    }


def normalized(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"counts": sorted(row["counts"]), "by_number": sorted(row["by_number"], key=lambda item: item[0])}


def scalar(type_: str) -> st.SearchStrategy[Any]:
    if type_ in SIGNED:
        return st.integers(-(2 ** (SIGNED[type_] - 1)), 2 ** (SIGNED[type_] - 1) - 1)
    if type_ in UNSIGNED:
        return st.integers(0, 2 ** UNSIGNED[type_] - 1)
    return {
        "bool": st.booleans(),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "string": st.text(max_size=10),
        "bytes": st.binary(max_size=10),
    }[type_]


@st.composite
def messages(draw: st.DrawFn) -> Any:
    value = ALL()
    for number, type_ in enumerate(SCALARS, 1):
        if draw(st.booleans()):
            setattr(value, f"f{number}", draw(scalar(type_)))
        getattr(value, f"r{number}").extend(draw(st.lists(scalar(type_), max_size=3)))
        if draw(st.booleans()):
            setattr(value, f"o{number}", draw(scalar(type_)))
    value.colour = draw(st.sampled_from([0, 5, -1, 77]))
    for _ in range(draw(st.integers(0, 3))):
        inner = value.inners.add(a=draw(st.integers(-5, 5)))
        inner.deep.add(n=draw(st.lists(scalar("sint64"), max_size=3)), c=5)
    for key in draw(st.lists(st.text(max_size=3), max_size=3)):
        value.counts[key] = draw(st.sampled_from([0, 1, -1]))
    value.by_number[0].b = "zero"
    value.at.FromDatetime(draw(st.datetimes(datetime(1700, 1, 1), datetime(2300, 1, 1))))
    value.words.extend(draw(st.lists(st.text(max_size=3), max_size=3)))
    if draw(st.booleans()):
        value.number = 0
    return value


def rich() -> Any:
    value = ALL(f1=7, f14="käse", r2=[1, 2, 3], o14="", words=["a", "b"], number=5, colour=5)
    value.inner.b = "x"
    value.inners.add(a=1).deep.add(n=[1, -1], c=-1)
    value.counts["k"] = 3
    value.at.seconds, value.at.nanos = -1, 999_999_999
    return value
