"""Kafka's primitive fields, as its coordinator records and its consumer protocol hold them.

The reader checks every length against the bytes that are left before it takes them, so rubbish costs no more than its
own size. A record's version decides whether its strings, bytes and arrays are plain (fixed-size lengths) or compact
(a varint of the length plus one) and followed by tagged fields; the reader is told once and reads accordingly.
"""

import struct
from collections.abc import Callable

from logbrook.model import LogbrookError

STRING_BYTES_MAX = 2**15 - 1
_VARINT_BYTES_MAX = 5

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class FieldReader:
    """A cursor over one record. Where the bytes do not read, everything raises the `corrupt` of what and why."""

    def __init__(
        self, data: bytes, what: str, corrupt: Callable[[str, str], LogbrookError], *, flexible: bool = False
    ) -> None:
        self.flexible = flexible
        self._corrupt = corrupt
        self._data = data
        self._what = what
        self._position = 0

    @property
    def remaining(self) -> int:
        return len(self._data) - self._position

    def int8(self) -> int:
        value: int = _INT8.unpack(self._take(1))[0]
        return value

    def int16(self) -> int:
        value: int = _INT16.unpack(self._take(2))[0]
        return value

    def int32(self) -> int:
        value: int = _INT32.unpack(self._take(4))[0]
        return value

    def int64(self) -> int:
        value: int = _INT64.unpack(self._take(8))[0]
        return value

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise self.error("has null where a string must be")
        return text

    def nullable_string(self) -> str | None:
        length = self._unsigned_varint() - 1 if self.flexible else self.int16()
        if length < 0:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError:
            raise self.error("has a string that is not UTF-8") from None

    def byte_string(self) -> bytes:
        length = self._unsigned_varint() - 1 if self.flexible else self.int32()
        if length < 0:
            raise self.error("has null where bytes must be")
        return self._take(length)

    def array_count(self, item_bytes_min: int) -> int:
        """How many items follow, each of which has at least so many bytes."""
        count = self.nullable_array_count(item_bytes_min)
        if count is None:
            raise self.error("has null where an array must be")
        return count

    def nullable_array_count(self, item_bytes_min: int) -> int | None:
        count = self._unsigned_varint() - 1 if self.flexible else self.int32()
        if count < 0:
            return None
        if count * item_bytes_min > self.remaining:
            raise self.error(f"counts {count} items in {self.remaining} bytes")
        return count

    def tagged_fields(self) -> dict[int, bytes]:
        """Fields that may or may not be there, by tag. Those that newer versions added may be passed over."""
        fields: dict[int, bytes] = {}
        if self.flexible:
            for _ in range(self._unsigned_varint()):
                tag = self._unsigned_varint()
                fields[tag] = self._take(self._unsigned_varint())
        return fields

    def end(self) -> None:
        if self.remaining:
            raise self.error(f"has {self.remaining} bytes too many")

    def error(self, reason: str) -> LogbrookError:
        return self._corrupt(self._what, reason)

    def _take(self, length: int) -> bytes:
        if length > self.remaining:
            raise self.error(f"ends {length - self.remaining} bytes too early")
        start = self._position
        self._position += length
        return self._data[start : self._position]

    def _unsigned_varint(self) -> int:
        value = 0
        for index in range(_VARINT_BYTES_MAX):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise self.error("has a varint that does not end")


class FieldWriter:
    """Puts a record together, of plain fields or of compact ones."""

    def __init__(self, *, flexible: bool = False) -> None:
        self.flexible = flexible
        self._parts: list[bytes] = []

    def int8(self, value: int) -> "FieldWriter":
        self._parts.append(_INT8.pack(value))
        return self

    def int16(self, value: int) -> "FieldWriter":
        self._parts.append(_INT16.pack(value))
        return self

    def int32(self, value: int) -> "FieldWriter":
        self._parts.append(_INT32.pack(value))
        return self

    def int64(self, value: int) -> "FieldWriter":
        self._parts.append(_INT64.pack(value))
        return self

    def string(self, text: str) -> "FieldWriter":
        data = text.encode()
        assert len(data) <= STRING_BYTES_MAX, "requests with longer strings are refused before they get here"
        self._parts += (self._length(len(data), _INT16), data)
        return self

    def nullable_string(self, text: str | None) -> "FieldWriter":
        if text is not None:
            return self.string(text)
        self._parts.append(self._length(-1, _INT16))
        return self

    def byte_string(self, data: bytes) -> "FieldWriter":
        self._parts += (self._length(len(data), _INT32), data)
        return self

    def array_count(self, count: int | None) -> "FieldWriter":
        """How many items follow; None for null in place of an array."""
        self._parts.append(self._length(-1 if count is None else count, _INT32))
        return self

    def tagged_fields(self, fields: dict[int, bytes]) -> "FieldWriter":
        assert self.flexible or not fields, "plain records have no place for them"
        if self.flexible:
            self._parts.append(_varint(len(fields)))
            for tag, data in sorted(fields.items()):
                self._parts += (_varint(tag), _varint(len(data)), data)
        return self

    def finish(self) -> bytes:
        return b"".join(self._parts)

    def _length(self, length: int, plain: struct.Struct) -> bytes:
        return _varint(length + 1) if self.flexible else plain.pack(length)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
