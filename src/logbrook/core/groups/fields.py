"""Kafka's primitive fields, as its coordinator records and its consumer protocol hold them.

The reader checks every length against the bytes that are left before it takes them, so rubbish costs no more than its
own size. A record's version decides whether its strings, bytes and arrays are plain (fixed-size lengths) or compact
(a varint of the length plus one) and followed by tagged fields; the reader is told once and reads accordingly.
"""

import struct

from logbrook.core.groups.errors import CorruptGroupRecordError

STRING_BYTES_MAX = 2**15 - 1
_VARINT_BYTES_MAX = 5

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class FieldReader:
    """A cursor over one record. Everything raises CorruptGroupRecordError where the bytes do not read."""

    def __init__(self, data: bytes, what: str, *, flexible: bool = False) -> None:
        self.flexible = flexible
        self._data = data
        self._what = what
        self._position = 0

    @property
    def remaining(self) -> int:
        return len(self._data) - self._position

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
        count = self._unsigned_varint() - 1 if self.flexible else self.int32()
        if count < 0:
            raise self.error("has null where an array must be")
        if count * item_bytes_min > self.remaining:
            raise self.error(f"counts {count} items in {self.remaining} bytes")
        return count

    def tagged_fields(self) -> None:
        """Skip what newer versions may have added."""
        if self.flexible:
            for _ in range(self._unsigned_varint()):
                self._unsigned_varint()
                self._take(self._unsigned_varint())

    def end(self) -> None:
        if self.remaining:
            raise self.error(f"has {self.remaining} bytes too many")

    def error(self, reason: str) -> CorruptGroupRecordError:
        return CorruptGroupRecordError(self._what, reason)

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
    """Plain (not compact) fields, which is what Logbrook writes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

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
        self._parts += (_INT16.pack(len(data)), data)
        return self

    def nullable_string(self, text: str | None) -> "FieldWriter":
        return self.int16(-1) if text is None else self.string(text)

    def byte_string(self, data: bytes) -> "FieldWriter":
        self._parts += (_INT32.pack(len(data)), data)
        return self

    def finish(self) -> bytes:
        return b"".join(self._parts)
