"""Writes `src/logbrook/protocol/messages` and `error_codes.py` from the definitions in kio: `make messages`.

kio has a dataclass for every version of every message. Here the versions of a message are laid over each other: a field
that several versions have becomes one field that knows which. What cannot be laid over each other (a field that changes
its type, an order that contradicts another) stops the generator.
"""

import argparse
import dataclasses
import importlib
import pkgutil
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional

APIS = (
    "add_offsets_to_txn",
    "add_partitions_to_txn",
    "alter_configs",
    "api_versions",
    "consumer_group_describe",
    "create_partitions",
    "create_topics",
    "delete_groups",
    "delete_records",
    "delete_topics",
    "describe_cluster",
    "describe_configs",
    "describe_groups",
    "describe_log_dirs",
    "describe_producers",
    "describe_topic_partitions",
    "describe_transactions",
    "end_txn",
    "fetch",
    "find_coordinator",
    "heartbeat",
    "incremental_alter_configs",
    "init_producer_id",
    "join_group",
    "leave_group",
    "list_groups",
    "list_offsets",
    "list_transactions",
    "metadata",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "offset_for_leader_epoch",
    "produce",
    "sync_group",
    "txn_offset_commit",
)
ROOT = Path(__file__).parents[1]
TARGET = ROOT / "src" / "logbrook" / "protocol"
NEVER = 2**15 - 1

# Durations and times are plain numbers of milliseconds here, and say so in their names.
_KINDS = {"timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64", "error_code": "int16"}
_PYTHON = {"string": "str", "bytes": "bytes", "records": "Records", "uuid": "bytes", "bool": "bool", "float64": "float"}
_ZEROS = {"string": '""', "bytes": 'b""', "uuid": "ZERO_UUID", "bool": "False", "float64": "0.0", "records": "None"}


@dataclass
class FieldInfo:
    name: str
    kind: str
    is_struct: bool
    array: bool
    tag: int | None
    versions: list[int] = field(default_factory=list)
    nullable: list[int] = field(default_factory=list)
    default: str | None = None

    @property
    def facts(self) -> tuple[object, ...]:
        return (self.name, self.kind, self.is_struct, self.array, self.tag)

    @property
    def python_default(self) -> str:
        if self.default is not None:
            return self.default
        if self.array:
            return "()"
        if self.is_struct:
            return "None"
        if self.nullable == self.versions:
            return "None"
        return _ZEROS.get(self.kind, "0")

    @property
    def python_type(self) -> str:
        base = self.kind if self.is_struct else _PYTHON.get(self.kind, "int")
        if self.array:
            base = f"Sequence[{base}]"
        is_optional_here = self.nullable or self.python_default == "None"
        return f"{base} | None" if is_optional_here else base


@dataclass
class Struct:
    name: str
    fields: list[FieldInfo] = field(default_factory=list)
    orders: dict[int, list[str]] = field(default_factory=dict)

    def lay_over(self, version: int, found: list[FieldInfo]) -> None:
        """Take the fields of one version, each at the place where that version has it."""
        place = 0
        for info in found:
            known = next((n for n, one in enumerate(self.fields) if one.name == info.name), None)
            if known is None:
                self.fields.insert(place, info)
                known = place
            mine = self.fields[known]
            if mine.facts != info.facts:
                raise SystemExit(f"{self.name}.{info.name} changes in version {version}: {mine} and {info}")
            mine.versions.append(version)
            if info is not mine:
                mine.nullable += info.nullable
            mine.default = mine.default or info.default
            place = known + 1
        self.orders[version] = [info.name for info in found]

    def check(self) -> None:
        for version, order in self.orders.items():
            here = [one.name for one in self.fields if version in one.versions]
            if here != order:
                raise SystemExit(f"{self.name}: version {version} has the order {order}, the merged one is {here}")
        for one in self.fields:
            for versions in (one.versions, one.nullable):
                if versions and versions != list(range(versions[0], versions[-1] + 1)):
                    raise SystemExit(f"{self.name}.{one.name} is there in versions {versions}, with gaps")


class Api:
    """All versions of one API, laid over each other."""

    def __init__(self, name: str) -> None:
        self.name = name
        package = importlib.import_module(f"kio.schema.{name}")
        self.versions = sorted(int(info.name[1:]) for info in pkgutil.iter_modules(package.__path__))
        self.key = 0
        self.flexible_since: dict[str, int] = {}
        self.title = "".join(part.title() for part in name.split("_"))

    def read(self, side: str) -> dict[str, Struct]:
        """The structs of the request or the response, those that others need first."""
        structs: dict[str, Struct] = {}
        self.flexible_since[side] = NEVER
        for version in self.versions:
            module = importlib.import_module(f"kio.schema.{self.name}.v{version}.{side}")
            top = getattr(module, f"{self.title}{side.title()}")
            self.key = int(top.__api_key__)
            if top.__flexible__:
                self.flexible_since[side] = min(self.flexible_since[side], version)
            self._read_struct(top, version, structs)
        for struct in structs.values():
            struct.check()
        return structs

    def _read_struct(self, entity: Any, version: int, structs: dict[str, Struct]) -> None:
        found = []
        for one in dataclasses.fields(entity):
            shape = classify_field(one)
            is_struct = isinstance(shape, EntityField | EntityTupleField)
            if is_struct:
                self._read_struct(shape.type_, version, structs)
            kafka_type = "" if is_struct else str(one.metadata["kafka_type"])
            name = one.name
            if kafka_type.startswith(("timedelta", "datetime")) and not name.endswith("_ms"):
                name += "_ms"
            default = _default(one, is_struct)
            if kafka_type == "uuid":
                default = None
            elif kafka_type == "datetime_i64" and is_optional(one):
                default = "-1"
            info = FieldInfo(
                name,
                shape.type_.__name__ if is_struct else _KINDS.get(kafka_type, kafka_type),
                is_struct,
                shape.is_array,
                one.metadata.get("tag"),
                default=default,
            )
            is_nullable = is_optional(one) or (shape.is_array and type(None) in getattr(one.type, "__args__", ()))
            # An id of zeros and a time of -1 say that there is none; neither has a null on the wire.
            has_null = is_nullable and kafka_type not in ("uuid", "datetime_i64")
            info.nullable = [version] if has_null else []
            found.append(info)
        struct = structs.setdefault(entity.__name__, Struct(entity.__name__))
        # Two fields of a message may have the same type.
        if version not in struct.orders:
            struct.lay_over(version, found)


def _default(one: Any, is_struct: bool) -> str | None:
    value = one.default
    if value is dataclasses.MISSING or is_struct:
        return None
    if hasattr(value, "total_seconds"):
        return str(round(value.total_seconds() * 1000))
    if hasattr(value, "timestamp"):
        return str(round(value.timestamp() * 1000))
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value))
    return '""' if value == "" else repr(value)


def render(name: str) -> str:
    api = Api(name)
    sides = {side: api.read(side) for side in ("request", "response")}
    rendered: dict[str, str] = {}
    for side, structs in sides.items():
        for struct in structs.values():
            text = _render_struct(api, side, struct)
            if rendered.setdefault(struct.name, text) != text:
                raise SystemExit(f"{name}: {struct.name} is not the same in the request and in the response")
    every = {**sides["request"], **sides["response"]}
    body = "\n\n".join(rendered[struct_name] for struct_name in _inner_first(every))
    schema = ["Field", "Versions"]
    schema += [one for one in ("ApiMessage", "Message", "ZERO_UUID") if f"({one})" in body or f"{one}," in body]
    lines = [f'"""Kafka\'s {api.title} messages. Generated by tools/messages.py; do not edit."""', ""]
    # Nobody looks at the annotations while the broker runs, and working them out takes half of the import.
    lines += ["from __future__ import annotations", ""]
    if "Sequence[" in body:
        lines += ["from collections.abc import Sequence"]
    lines += ["from typing import ClassVar", ""]
    if "Records" in body:
        lines += ["from logbrook.protocol.primitives import Records"]
    lines += [f"from logbrook.protocol.schema import {', '.join(schema)}", "", "", body, ""]
    return "\n".join(lines)


def _inner_first(structs: dict[str, Struct]) -> list[str]:
    """The names of the structs, each after those that it is made of."""
    order: list[str] = []

    def visit(name: str) -> None:
        for one in structs[name].fields:
            if one.is_struct:
                visit(one.kind)
        if name not in order:
            order.append(name)

    for name in structs:
        visit(name)
    return order


def _render_struct(api: Api, side: str, struct: Struct) -> str:
    top = struct.name == f"{api.title}{side.title()}"
    names = [one.name for one in struct.fields]
    lines = [f"class {struct.name}({'ApiMessage' if top else 'Message'}):"]
    lines.append(f"    __slots__ = ({', '.join(repr(name) for name in sorted(names))}{',' * bool(names)})")
    if top:
        lines.append(f"    API_KEY: ClassVar[int] = {api.key}")
        lines.append(f"    API_NAME: ClassVar[str] = {api.title!r}")
        lines.append(f"    VERSIONS: ClassVar[Versions] = Versions({api.versions[0]}, {api.versions[-1]})")
        lines.append(f"    FLEXIBLE_SINCE: ClassVar[int] = {api.flexible_since[side]}")
    if struct.fields:
        lines.append("    FIELDS: ClassVar[tuple[Field, ...]] = (")
        lines += [f"        {_render_field(one)}," for one in struct.fields]
        lines += ["    )", "", "    def __init__(", "        self,", "        *,"]
        lines += [f"        {one.name}: {one.python_type} = {one.python_default}," for one in struct.fields]
        lines.append("    ) -> None:")
        lines += [f"        self.{name} = {name}" for name in names]
    return "\n".join(lines) + "\n"


def _render_field(one: FieldInfo) -> str:
    kind = one.kind if one.is_struct else repr(one.kind)
    parts = [repr(one.name), kind, f"Versions({one.versions[0]}, {one.versions[-1]})"]
    if one.array:
        parts.append("array=True")
    if one.nullable:
        parts.append(f"nullable=Versions({one.nullable[0]}, {one.nullable[-1]})")
    if one.tag is not None:
        parts.append(f"tag={one.tag}")
    if one.python_default != "None":
        parts.append(f"default={one.python_default}")
    return f"Field({', '.join(parts)})"


def render_error_codes() -> str:
    lines = [
        '"""Kafka\'s error codes. Generated by tools/messages.py; do not edit."""',
        "",
        "from enum import IntEnum",
        "",
        "",
        "class ErrorCode(IntEnum):",
    ]
    lines += [f"    {code.name.upper()} = {int(code)}" for code in ErrorCode]
    retriable = ", ".join(f"ErrorCode.{code.name.upper()}" for code in ErrorCode if code.retriable)
    lines += ["", "", f"RETRIABLE = frozenset({{{retriable}}})", ""]
    return "\n".join(lines)


def write(target: Path) -> None:
    """Write every generated file under `target`, formatted."""
    messages = target / "messages"
    shutil.rmtree(messages, ignore_errors=True)
    messages.mkdir(parents=True)
    (messages / "__init__.py").write_text('"""Kafka\'s messages, one module per API. All of it is generated."""\n')
    for name in APIS:
        (messages / f"{name}.py").write_text(render(name))
    (target / "error_codes.py").write_text(render_error_codes())
    paths = [str(messages), str(target / "error_codes.py")]
    for command in (["format", "--quiet"], ["check", "--fix", "--quiet"], ["format", "--quiet"]):
        settings = ["--config", str(ROOT / "pyproject.toml")]
        subprocess.run([sys.executable, "-m", "ruff", *command, *settings, *paths], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=textwrap.shorten(__doc__ or "", 200))
    parser.add_argument("--target", type=Path, default=TARGET)
    write(parser.parse_args().target)


if __name__ == "__main__":
    main()
