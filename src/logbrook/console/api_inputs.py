"""Request bodies of the HTTP API. Every field has a description, from which the documentation is generated.

A key, value or header value is `null`, a string, `{"base64": "AAE="}` for bytes, or `{"json": ...}`, which is written
as compact JSON. Anything else is refused with a hint at these forms, rather than with one error for each of them.
"""

import base64
import binascii
import json
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

RECORDS_MAX = 10_000
_FORMS = 'a string, null, {"base64": "…"} or {"json": …}'
_KINDS = {dict: "object", list: "list", bool: "boolean", int: "number", float: "number"}


class Binary(BaseModel):
    """Arbitrary bytes."""

    model_config = ConfigDict(extra="forbid")
    base64: str = Field(description="The bytes in standard base64 with padding.")


class AsJson(BaseModel):
    """A value that is written as compact JSON."""

    model_config = ConfigDict(extra="forbid")
    json_: Any = Field(alias="json", description="Any JSON.")


def _check_form(given: Any) -> Any:
    if given is None or isinstance(given, str | Binary | AsJson):
        return given
    if isinstance(given, dict) and (given.keys() == {"json"} or given.keys() == {"base64"}):
        return given
    kind = _KINDS.get(type(given), "value")
    raise ValueError(f'this must be {_FORMS}: to write the {kind} as JSON, wrap it in {{"json": …}}')


def _as_list(headers: Any) -> Any:
    if isinstance(headers, dict):
        return [{"name": name, "value": value} for name, value in headers.items()]
    return headers


def _setting_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Given = Annotated[str | Binary | AsJson | None, BeforeValidator(_check_form)]
SettingText = Annotated[str, BeforeValidator(_setting_text, json_schema_input_type=str | int | float | bool)]


class HeaderIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(description="Name of the header.")
    value: Given = Field(None, description=f"Its value: {_FORMS}.")


class RecordIn(BaseModel):
    """A record to write."""

    model_config = ConfigDict(extra="forbid")
    key: Given = Field(None, description=f"The key: {_FORMS}.")
    value: Given = Field(None, description=f"The value: {_FORMS}. null is a tombstone.")
    headers: Annotated[
        list[HeaderIn], BeforeValidator(_as_list, json_schema_input_type=dict[str, Given] | list[HeaderIn])
    ] = Field(
        [],
        description='An object {"name": value}, or a list of {"name": …, "value": …} if a name occurs twice.',
    )
    partition: int | None = Field(None, ge=0, description="The partition; by default that of the key.")
    timestamp_ms: int | None = Field(None, ge=0, lt=2**63, description="Timestamp in ms since 1970; by default now.")


class ProduceIn(BaseModel):
    """Records in the order in which they are written."""

    model_config = ConfigDict(extra="forbid")
    records: list[RecordIn] = Field(
        min_length=1, max_length=RECORDS_MAX, description=f"1 to {RECORDS_MAX:,} records, in order."
    )


class TopicIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(min_length=1, max_length=249, description="Letters, digits, '.', '_' and '-'.")
    partitions: int | None = Field(None, ge=1, description="Number of partitions; by default the cluster's.")
    settings: dict[str, SettingText] = Field(
        {}, description='Settings of the topic by name, such as {"retention.ms": 86400000}.'
    )


class PartitionsIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    count: int = Field(ge=1, description="Number of partitions in all; it can only grow.")


class TrimIn(BaseModel):
    """The first offset to keep."""

    model_config = ConfigDict(extra="forbid")
    to: str = Field(description="Delete everything before: end, offset or time.")
    at: str | int = Field("", description="The offset, or the time (ISO 8601, UTC unless it has a zone, or ms).")
    partitions: list[int] = Field([], description="Only these partitions; by default all.")
    dry_run: bool = Field(False, description="Only show what would be deleted.")


class ResetIn(BaseModel):
    """The new position of a group."""

    model_config = ConfigDict(extra="forbid")
    to: str = Field(description="start, end, offset or time.")
    at: str | int = Field("", description="The offset, or the time (ISO 8601, UTC unless it has a zone, or ms).")
    topics: list[str] = Field([], description="Only these topics; by default all that the group has offsets for.")
    partitions: list[int] = Field([], description="Only these partitions of the topics; by default all.")
    dry_run: bool = Field(False, description="Only show the changes.")


def bytes_from_json(given: str | Binary | AsJson | None) -> bytes | None:
    """Return the bytes of a key or value in a request. Raises ValueError for invalid base64."""
    match given:
        case None:
            return None
        case str():
            return given.encode()
        case Binary():
            try:
                return base64.b64decode(given.base64, validate=True)
            except binascii.Error as error:
                raise ValueError(f"{given.base64[:40]!r} is not base64: {error}") from None
        case AsJson():
            try:
                return json.dumps(given.json_, separators=(",", ":"), ensure_ascii=False).encode()
            except RecursionError:
                raise ValueError('a value of {"json": …} is nested too deeply') from None
