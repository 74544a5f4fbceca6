"""Description of Kafka's messages, from which `decoding` and `encoding` are compiled.

The classes in `messages` are generated (`make messages`) from the message definitions of the `kio` library. One class
covers all versions of a message: a field has the range of versions that contain it, and its default value in the
others. A handler therefore sees one class, whatever version the client uses.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

from logbrook.ports import FileRegion

ZERO_UUID = bytes(16)
# Record batches: decoded as a view of the frame, encoded from buffers or regions of files without a copy.
Records: TypeAlias = bytes | bytearray | memoryview | Sequence[memoryview | FileRegion]
# Primitive types of a fixed size, with their codes in the `struct` module. A UUID is 16 bytes.
FIXED_SIZE_CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}


class Versions(NamedTuple):
    """The versions from `first` to `last`, inclusive."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


class Field(NamedTuple):
    """One field of a message. `kind` is the name of a primitive type or the class of a nested struct."""

    name: str
    kind: "str | type[Message]"
    versions: Versions
    array: bool = False
    nullable: Versions | None = None
    tag: int | None = None
    default: Any = None

    @property
    def is_fixed_size(self) -> bool:
        return self.kind in FIXED_SIZE_CODES and not self.array

    def is_nullable(self, version: int) -> bool:
        return self.nullable is not None and version in self.nullable


class Message:
    """A message or a nested struct."""

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
