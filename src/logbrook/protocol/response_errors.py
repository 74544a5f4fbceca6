"""The error codes in a response, found by the schema: at the top, per topic, per partition, per group.

A collector is compiled for each response class and version, as in `decoding`. It visits the `error_code` fields that
the version has and the arrays that contain some, and nothing else.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from logbrook.protocol.schema import ApiMessage, Message

# Appends the non-zero error codes of a message to a list.
Collector: TypeAlias = Callable[[Any, list[int]], None]

_COLLECTORS: dict[tuple[type[ApiMessage], int], Collector | None] = {}


def response_error_codes(response: ApiMessage, version: int) -> Sequence[int]:
    """Return all non-zero error codes that `response` carries in `version`, one for each time it occurs."""
    key = type(response), version
    try:
        collect = _COLLECTORS[key]
    except KeyError:
        collect = _COLLECTORS[key] = _compile(*key)
    if collect is None:
        return ()
    codes: list[int] = []
    collect(response, codes)
    return codes


def _compile(message: type[Message], version: int) -> Collector | None:
    """Return None for a message that has no error code in this version."""
    lines = _lines(message, version, "value", 1)
    if not lines:
        return None
    source = "def collect(value, codes):\n" + "".join(f"{line}\n" for line in lines)
    names: dict[str, Collector] = {}
    exec(compile(source, f"<error codes of {message.__name__} version {version}>", "exec"), names)
    return names["collect"]


def _lines(message: type[Message], version: int, value: str, depth: int) -> list[str]:
    """Return the statements that visit the error codes of the struct in the variable `value`."""
    indent = " " * depth
    lines: list[str] = []
    for field in message.FIELDS:
        if version not in field.versions:
            continue
        content = f"{value}.{field.name}"
        if isinstance(field.kind, str):
            if field.name.endswith("error_code"):
                lines.append(f"{indent}if {content}: codes.append({content})")
        elif inner := _lines(field.kind, version, f"value{depth}", depth + 1):
            # A nullable struct is an array of at most one.
            items = f"{content} or ()" if field.array else f"() if {content} is None else ({content},)"
            lines += [f"{indent}for value{depth} in {items}:", *inner]
    return lines
