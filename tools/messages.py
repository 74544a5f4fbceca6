"""Generate `src/logbrook/protocol/messages` and `error_codes.py` from the schemas in kio: `make messages`.

kio has one dataclass per version of a message. The generator merges all versions of a message into one class whose
fields carry the range of versions that have them. It stops with an error where versions cannot be merged: a field that
changes its type, or two versions with contradicting field orders. Where the request and the response have different
structs of one name, the name of the response's struct begins with `Response`.
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
    "alter_client_quotas",
    "alter_configs",
    "alter_partition_reassignments",
    "alter_replica_log_dirs",
    "alter_user_scram_credentials",
    "api_versions",
    "consumer_group_describe",
    "create_acls",
    "create_delegation_token",
    "create_partitions",
    "create_topics",
    "delete_acls",
    "delete_groups",
    "delete_records",
    "delete_topics",
    "describe_acls",
    "describe_client_quotas",
    "describe_cluster",
    "describe_configs",
    "describe_delegation_token",
    "describe_groups",
    "describe_log_dirs",
    "describe_producers",
    "describe_quorum",
    "describe_topic_partitions",
    "describe_transactions",
    "describe_user_scram_credentials",
    "elect_leaders",
    "end_txn",
    "expire_delegation_token",
    "fetch",
    "find_coordinator",
    "get_telemetry_subscriptions",
    "heartbeat",
    "incremental_alter_configs",
    "init_producer_id",
    "join_group",
    "leave_group",
    "list_config_resources",
    "list_groups",
    "list_offsets",
    "list_partition_reassignments",
    "list_transactions",
    "metadata",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "offset_for_leader_epoch",
    "produce",
    "renew_delegation_token",
    "sasl_authenticate",
    "sasl_handshake",
    "sync_group",
    "txn_offset_commit",
    "unregister_broker",
    "update_features",
    "write_txn_markers",
)
ROOT = Path(__file__).parents[1]
TARGET = ROOT / "src" / "logbrook" / "protocol"
NEVER = 2**15 - 1

# Durations and timestamps are integers in milliseconds; their field names end in `_ms`.
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
    def signature(self) -> tuple[object, ...]:
        """The properties that must be equal in all versions of a field."""
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
        accepts_none = self.nullable or self.python_default == "None"
        return f"{base} | None" if accepts_none else base


@dataclass
class Struct:
    name: str
    fields: list[FieldInfo] = field(default_factory=list)
    orders: dict[int, list[str]] = field(default_factory=dict)

    def merge(self, version: int, version_fields: list[FieldInfo]) -> None:
        """Merge the fields of `version`, inserting new fields at their position in that version."""
        position = 0
        for info in version_fields:
            index = next((n for n, merged in enumerate(self.fields) if merged.name == info.name), None)
            if index is None:
                self.fields.insert(position, info)
                index = position
            merged = self.fields[index]
            if merged.signature != info.signature:
                raise SystemExit(f"{self.name}.{info.name} changes in version {version}: {merged} and {info}")
            merged.versions.append(version)
            if info is not merged:
                merged.nullable += info.nullable
            merged.default = merged.default or info.default
            position = index + 1
        self.orders[version] = [info.name for info in version_fields]

    def check(self) -> None:
        """Exit with an error if a version's field order is lost or a field's versions are not contiguous."""
        for version, order in self.orders.items():
            merged_order = [info.name for info in self.fields if version in info.versions]
            if merged_order != order:
                raise SystemExit(f"{self.name}: version {version} has the order {order}, merged: {merged_order}")
        for info in self.fields:
            for versions in (info.versions, info.nullable):
                if versions and versions != list(range(versions[0], versions[-1] + 1)):
                    raise SystemExit(f"{self.name}.{info.name} exists in versions {versions}, which have gaps")


class Api:
    """One API with the merged versions of its request and response."""

    def __init__(self, name: str) -> None:
        self.name = name
        package = importlib.import_module(f"kio.schema.{name}")
        self.versions = sorted(int(info.name[1:]) for info in pkgutil.iter_modules(package.__path__))
        self.key = 0
        self.flexible_since: dict[str, int] = {}
        self.title = "".join(part.title() for part in name.split("_"))

    def read(self, side: str) -> dict[str, Struct]:
        """Return the structs of the request or the response by name, nested structs first."""
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
        infos = []
        for entity_field in dataclasses.fields(entity):
            shape = classify_field(entity_field)
            is_struct = isinstance(shape, EntityField | EntityTupleField)
            if is_struct:
                self._read_struct(shape.type_, version, structs)
            kafka_type = "" if is_struct else str(entity_field.metadata["kafka_type"])
            name = entity_field.name
            if kafka_type.startswith(("timedelta", "datetime")) and not name.endswith("_ms"):
                name += "_ms"
            default = _default(entity_field, is_struct)
            if kafka_type == "uuid":
                default = None
            elif kafka_type == "datetime_i64" and is_optional(entity_field):
                default = "-1"
            info = FieldInfo(
                name,
                shape.type_.__name__ if is_struct else _KINDS.get(kafka_type, kafka_type),
                is_struct,
                shape.is_array,
                entity_field.metadata.get("tag"),
                default=default,
            )
            is_nullable = is_optional(entity_field) or (
                shape.is_array and type(None) in getattr(entity_field.type, "__args__", ())
            )
            # An absent uuid is all zeros and an absent timestamp is -1; neither has a null encoding.
            has_null = is_nullable and kafka_type not in ("uuid", "datetime_i64")
            info.nullable = [version] if has_null else []
            infos.append(info)
        struct = structs.setdefault(entity.__name__, Struct(entity.__name__))
        # Two fields of a message may have the same struct type; merge it once per version.
        if version not in struct.orders:
            struct.merge(version, infos)


def _default(entity_field: Any, is_struct: bool) -> str | None:
    value = entity_field.default
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
    requests, responses = api.read("request"), api.read("response")
    responses = _with_unique_names(api, requests, responses)
    rendered = {name: _render_struct(api, "request", struct) for name, struct in requests.items()}
    rendered |= {name: _render_struct(api, "response", struct) for name, struct in responses.items()}
    body = "\n\n".join(rendered[struct_name] for struct_name in _nested_first({**requests, **responses}))
    schema = ["Field", "Versions"]
    schema += [name for name in ("ApiMessage", "Message", "ZERO_UUID") if f"({name})" in body or f"{name}," in body]
    schema += ["Records"] if "Records" in body else []
    lines = [f'"""Kafka\'s {api.title} messages. Generated by tools/messages.py; do not edit."""', ""]
    # Annotations are not needed at run time; evaluating them would double the import time.
    lines += ["from __future__ import annotations", ""]
    if "Sequence[" in body:
        lines += ["from collections.abc import Sequence"]
    lines += ["from typing import ClassVar", ""]
    lines += [f"from logbrook.protocol.schema import {', '.join(schema)}", "", "", body, ""]
    return "\n".join(lines)


def _with_unique_names(api: Api, requests: dict[str, Struct], responses: dict[str, Struct]) -> dict[str, Struct]:
    """Return the structs of the response, with other names where the request has a different struct of that name."""
    different = {
        name
        for name in requests.keys() & responses.keys()
        if _render_struct(api, "request", requests[name]) != _render_struct(api, "response", responses[name])
    }
    # A struct that contains a different struct is different too, even if it is written the same.
    while containing := {
        name
        for name in (requests.keys() & responses.keys()) - different
        if any(info.is_struct and info.kind in different for info in responses[name].fields)
    }:
        different |= containing
    for struct in responses.values():
        if struct.name in different:
            struct.name = f"Response{struct.name}"
        for info in struct.fields:
            if info.is_struct and info.kind in different:
                info.kind = f"Response{info.kind}"
    return {struct.name: struct for struct in responses.values()}


def _nested_first(structs: dict[str, Struct]) -> list[str]:
    """Return the struct names in an order in which each follows the structs it contains."""
    order: list[str] = []

    def visit(name: str) -> None:
        for info in structs[name].fields:
            if info.is_struct:
                visit(info.kind)
        if name not in order:
            order.append(name)

    for name in structs:
        visit(name)
    return order


def _render_struct(api: Api, side: str, struct: Struct) -> str:
    top = struct.name == f"{api.title}{side.title()}"
    names = [info.name for info in struct.fields]
    lines = [f"class {struct.name}({'ApiMessage' if top else 'Message'}):"]
    lines.append(f"    __slots__ = ({', '.join(repr(name) for name in sorted(names))}{',' * bool(names)})")
    if top:
        lines.append(f"    API_KEY: ClassVar[int] = {api.key}")
        lines.append(f"    API_NAME: ClassVar[str] = {api.title!r}")
        lines.append(f"    VERSIONS: ClassVar[Versions] = Versions({api.versions[0]}, {api.versions[-1]})")
        lines.append(f"    FLEXIBLE_SINCE: ClassVar[int] = {api.flexible_since[side]}")
    if struct.fields:
        lines.append("    FIELDS: ClassVar[tuple[Field, ...]] = (")
        lines += [f"        {_render_field(info)}," for info in struct.fields]
        lines += ["    )", "", "    def __init__(", "        self,", "        *,"]
        lines += [f"        {info.name}: {info.python_type} = {info.python_default}," for info in struct.fields]
        lines.append("    ) -> None:")
        lines += [f"        self.{name} = {name}" for name in names]
    return "\n".join(lines) + "\n"


def _render_field(info: FieldInfo) -> str:
    kind = info.kind if info.is_struct else repr(info.kind)
    parts = [repr(info.name), kind, f"Versions({info.versions[0]}, {info.versions[-1]})"]
    if info.array:
        parts.append("array=True")
    if info.nullable:
        parts.append(f"nullable=Versions({info.nullable[0]}, {info.nullable[-1]})")
    if info.tag is not None:
        parts.append(f"tag={info.tag}")
    if info.python_default != "None":
        parts.append(f"default={info.python_default}")
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
    (messages / "__init__.py").write_text(
        '"""Kafka\'s messages, one module per API, generated from kio (`make messages`). '
        'They import `protocol.schema` only."""\n'
    )
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
