"""How Kafka's messages are described, so that one codec reads and writes all of them.

The classes in `messages` are generated (`make messages`) from the message definitions that the `kio` library carries
for every API version. One class stands for all versions of a message: a field knows the versions that have it, and its
default is what it has in the others. So a handler sees one shape, whatever version a client speaks.
"""

from typing import Any, ClassVar, NamedTuple

ZERO_UUID = bytes(16)


class Versions(NamedTuple):
    """The versions from `first` to `last`, both included."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


class Field(NamedTuple):
    """One field of a message. `kind` names a primitive, or is the class of a nested message."""

    name: str
    kind: "str | type[Message]"
    versions: Versions
    array: bool = False
    nullable: Versions | None = None
    tag: int | None = None
    default: Any = None


class Message:
    """A message or a part of one."""

    __slots__ = ()
    FIELDS: ClassVar[tuple[Field, ...]] = ()

    def __repr__(self) -> str:
        fields = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in self.FIELDS)
        return f"{type(self).__name__}({fields})"


class ApiMessage(Message):
    """A request or a response. Versions from `FLEXIBLE_SINCE` on have compact lengths and tagged fields (KIP-482)."""

    __slots__ = ()
    API_KEY: ClassVar[int]
    API_NAME: ClassVar[str]
    VERSIONS: ClassVar[Versions]
    FLEXIBLE_SINCE: ClassVar[int]
