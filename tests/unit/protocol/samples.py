"""Messages made up from their own descriptions: random ones, and ones that have every field."""

from random import Random
from typing import Any, TypeVar

from logbrook.protocol.schema import ZERO_UUID, Field, Message

M = TypeVar("M", bound=Message)

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_CHARACTERS = "abcxyz019._- äé€漢𝄞"


class Sampler:
    """Random messages, the same ones for the same seed.

    `full` ones have a value for every field that the version has: no nulls, no empty arrays, every tag.
    """

    def __init__(self, seed: str, *, full: bool = False) -> None:
        self._random = Random(seed)
        self._full = full

    def message(self, message: type[M], version: int) -> M:
        """Generate a message. Fields that the version does not have keep their defaults."""
        made = message()
        for field in message.FIELDS:
            if version in field.versions and not self._leaves_out(field):
                setattr(made, field.name, self._value(field, version))
        return made

    def _leaves_out(self, field: Field) -> bool:
        return field.tag is not None and not self._full and self._random.random() < 0.5

    def _value(self, field: Field, version: int) -> Any:
        is_nullable = field.nullable is not None and version in field.nullable
        if is_nullable and not self._full and self._random.random() < 0.25:
            return None
        if not field.array:
            return self._one(field, version)
        return [self._one(field, version) for _ in range(self._length(field))]

    def _length(self, field: Field) -> int:
        """Return a length, sometimes large enough for a count of two bytes."""
        if self._full:
            return 1
        is_long = self._random.random() < (0.05 if isinstance(field.kind, str) else 0.005)
        return 130 if is_long else self._random.choice((0, 1, 1, 2, 3))

    def _one(self, field: Field, version: int) -> Any:
        if isinstance(field.kind, str):
            return self._primitive(field.kind)
        return self.message(field.kind, version)

    def _primitive(self, kind: str) -> Any:
        random = self._random
        if kind in _BITS:
            return self._number(_BITS[kind])
        if kind == "bool":
            return True if self._full else random.random() < 0.5
        if kind in ("uint16", "float64"):
            return random.randrange(1 << 16) if kind == "uint16" else random.choice((0.0, -1e300, random.random()))
        if kind == "string":
            return "".join(random.choices(_CHARACTERS, k=self._size()))
        if kind == "uuid":
            return random.randbytes(16) if self._full or random.random() < 0.8 else ZERO_UUID
        assert kind in ("bytes", "records"), kind
        return random.randbytes(self._size())

    def _size(self) -> int:
        """Return a size, sometimes large enough for a length of two or three bytes."""
        if self._full:
            return 5
        return self._random.choice((0, 1, 3, 10, 30, 30, 127, 128, 16_500 if self._random.random() < 0.05 else 7))

    def _number(self, bits: int) -> int:
        top = 1 << (bits - 1)
        ends = (0, -1, 1, top - 1, -top)
        return self._random.choice(ends) if self._random.random() < 0.3 else self._random.randrange(-top, top)
