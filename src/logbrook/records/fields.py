"""Reader and writer of Kafka's primitive fields, for coordinator records and the consumer protocol.

A record is either plain (strings, bytes and arrays have fixed-size lengths) or flexible (lengths are a varint of the
length plus one, and tagged fields follow). `flexible` selects the encoding. The reader checks every length against the
remaining bytes before it slices, so corrupt input cannot make it allocate more than the input's own size.
"""

import struct
from collections.abc import Callable

from logbrook.model import LogbrookError
from logbrook.records.record import encode_uvarint

STRING_BYTES_MAX = 2**15 - 1
_VARINT_BYTES_MAX = 5

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class FieldReader:
    """Cursor over the fields of one record. Malformed input raises `corrupt(subject, reason)`."""

    def __init__(
        self, data: bytes, subject: str, corrupt: Callable[[str, str], LogbrookError], *, flexible: bool = False
    ) -> None:
        self.flexible = flexible
        self._corrupt = corrupt
        self._data = data
        self._subject = subject
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
        """Return the number of array items that follow, each at least `item_bytes_min` bytes long."""
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
        """Return the tagged fields by tag; unknown tags of newer versions can be ignored."""
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
        return self._corrupt(self._subject, reason)

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
    """Builder of one record, plain or flexible. Methods return the writer, so calls can be chained."""

    def __init__(self, *, flexible: bool = False) -> None:
        self.flexible = flexible
        self._parts: list[bytes] = []

    def int8(self, value: int) -> "FieldWriter":
        return self._add(_INT8.pack(value))

    def int16(self, value: int) -> "FieldWriter":
        return self._add(_INT16.pack(value))

    def int32(self, value: int) -> "FieldWriter":
        return self._add(_INT32.pack(value))

    def int64(self, value: int) -> "FieldWriter":
        return self._add(_INT64.pack(value))

    def string(self, text: str) -> "FieldWriter":
        data = text.encode()
        assert len(data) <= STRING_BYTES_MAX, "requests with longer strings are rejected before they get here"
        return self._add(self._length(len(data), _INT16), data)

    def nullable_string(self, text: str | None) -> "FieldWriter":
        if text is not None:
            return self.string(text)
        return self._add(self._length(-1, _INT16))

    def byte_string(self, data: bytes) -> "FieldWriter":
        return self._add(self._length(len(data), _INT32), data)

    def array_count(self, count: int | None) -> "FieldWriter":
        """Write the length of an array; None writes a null array."""
        return self._add(self._length(-1 if count is None else count, _INT32))

    def tagged_fields(self, fields: dict[int, bytes]) -> "FieldWriter":
        assert self.flexible or not fields, "plain records have no tagged fields"
        if self.flexible:
            self._add(encode_uvarint(len(fields)))
            for tag, data in sorted(fields.items()):
                self._add(encode_uvarint(tag), encode_uvarint(len(data)), data)
        return self

    def finish(self) -> bytes:
        return b"".join(self._parts)

    def _add(self, *parts: bytes) -> "FieldWriter":
        self._parts += parts
        return self

    def _length(self, length: int, plain: struct.Struct) -> bytes:
        return encode_uvarint(length + 1) if self.flexible else plain.pack(length)
