"""The writers' schemas that a process has met, and the values that they are for.

Each schema is fetched and prepared once. A schema that the registry does not know may be registered later, so it is
asked for again after 30 s.
"""

from collections.abc import Callable
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from logbrook.spark.errors import SparkError
from logbrook.spark.schemas.errors import IncompatibleSchemaError, InvalidSchemaError, UnknownSchemaError
from logbrook.spark.schemas.kernels.avro import ValueBounds
from logbrook.spark.schemas.kernels.frames import FRAME_BYTES
from logbrook.spark.schemas.registry import RegisteredSchema, SchemaRegistry

T = TypeVar("T")
Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.uint8]

_UNKNOWN_SCHEMA_S = 30.0


class UnreadableSchemaError(SparkError):
    """No value of a schema can be decoded."""


class WriterSchemas(Generic[T]):
    """The writers' schemas that were met, each as `compute` makes it of the registered one, by schema id."""

    def __init__(self, registry: SchemaRegistry, type_: str, compute: Callable[[RegisteredSchema], T]) -> None:
        self._registry = registry
        self._type = type_
        self._compute = compute
        self._known: dict[int, T | UnreadableSchemaError] = {}
        self._unknown_until_s: dict[int, float] = {}

    def get(self, schema_id: int) -> T:
        """Raises UnreadableSchemaError, again for each call; and RegistryError."""
        known = self._known.get(schema_id)
        if known is None or monotonic() >= self._unknown_until_s.get(schema_id, np.inf):
            known = self._known[schema_id] = self._fetch(schema_id)
        if isinstance(known, UnreadableSchemaError):
            # A new one, because a traceback grows each time that its error is raised.
            raise UnreadableSchemaError(str(known))
        return known

    def _fetch(self, schema_id: int) -> T | UnreadableSchemaError:
        self._unknown_until_s.pop(schema_id, None)
        try:
            writer = self._registry.schema(schema_id)
            if writer.type.upper() != self._type:
                raise InvalidSchemaError(f"it is {writer.type}, not {self._type}")
            return self._compute(writer)
        except UnknownSchemaError as error:
            self._unknown_until_s[schema_id] = monotonic() + _UNKNOWN_SCHEMA_S
            return UnreadableSchemaError(str(error))
        except (IncompatibleSchemaError, InvalidSchemaError) as error:
            return UnreadableSchemaError(f"schema {schema_id} cannot be read: {error}")


class BinaryValues(NamedTuple):
    """A binary column as numpy arrays, of which the first two are read-only."""

    data: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int32]
    is_valid: Flags

    def bounds(self, rows: Longs) -> ValueBounds:
        """Return where the values of `rows` are, without the schema id."""
        return ValueBounds(self.ends[rows].astype(np.int64) + FRAME_BYTES, self.ends[rows + 1].astype(np.int64))


def as_binary(values: Any) -> BinaryValues:
    """Return the buffers of a binary array."""
    _, ends, data = values.buffers()
    first, rows = values.offset, len(values)
    is_valid = np.ones(rows, np.uint8)
    if values.null_count:
        is_valid = np.asarray(values.is_valid()).view(np.uint8)
    return BinaryValues(
        _readonly(np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)),
        _readonly(np.zeros(rows + 1, np.int32) if ends is None else np.frombuffer(ends, np.int32)[first:][: rows + 1]),
        is_valid,
    )


def _readonly(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only view: the kernels' signatures require one, and some of Arrow's buffers are writable."""
    array = array.view()
    array.flags.writeable = False
    return array
