"""Reading of ranges in tests, and clients that return wrong responses."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

from logbrook.client import Fetched
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.records.batch import iter_headers
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.spark import fetching
from logbrook.spark.fetching import read_range
from logbrook.spark.offset_ranges import OffsetRange
from logbrook.spark.read_options import ReadOptions, read_options

NOWHERE = "127.0.0.1:1"
TIME_MS = 1_700_000_000_123
COMMIT, ABORT = 1, 0
_MARKER = Struct(">hh")


def options_for(servers: str, **options: str) -> ReadOptions:
    texts = {name.replace("_", "."): text for name, text in options.items()}
    least = {"kafka.bootstrap.servers": servers, "subscribe": "t"}
    least |= {"fetchOffset.retryIntervalMs": "10", "fetchOffset.numRetries": "3"}
    return read_options(least | texts, is_batch=True)


def read(
    servers: str, topic: str, start: int, end: int, columns: Sequence[str] = ("offset",), **options: str
) -> list[Any]:
    range_ = OffsetRange(TopicPartition(topic, 0), start, end)
    batches = read_range(options_for(servers, **options), tuple(columns), range_)
    return [row if len(row) > 1 else row[columns[0]] for batch in batches for row in batch.to_pylist()]


def batch_at(offset: int, *values: bytes, **how: Any) -> bytes:
    return bytes(
        build_batch([Record(value=value, timestamp=TIME_MS) for value in values], base_offset=Offset(offset), **how)
    )


@dataclass
class Liar:
    """A fake client that returns the batches which end after the offset, `at_once` of them."""

    batches: list[bytes]
    # Producer, first offset and last offset of each aborted transaction.
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    at_once: int = 1000
    asked: list[int] = field(default_factory=list)

    def fetch(self, topic: str, partition: int, offset: int, **_: Any) -> Fetched:
        self.asked.append(offset)
        wanted = [data for data in self.batches if next(iter_headers(data))[1].next_offset > offset][: self.at_once]
        data = b"".join(wanted)
        last = max((header.last_offset for _, header in iter_headers(data)), default=-1)
        aborted = tuple((producer, first) for producer, first, end in self.aborted if end >= offset and first <= last)
        return Fetched(memoryview(data), Offset(10**6), Offset(10**6), Offset(0), aborted)

    def close(self) -> None:
        pass


@dataclass
class Filling(Liar):
    """Writes its response into the caller's memory, as the real client does."""

    # The size and the identity of the memory of each fetch.
    memories: list[tuple[int, int]] = field(default_factory=list)

    def fetch(self, topic: str, partition: int, offset: int, **how: Any) -> Fetched:
        fetched = super().fetch(topic, partition, offset, **how)
        size, memory = len(fetched.records), how["memory"]
        self.memories.append((len(memory), id(memory)))
        received = memory if len(memory) >= size else bytearray(size)
        received[:size] = fetched.records
        return fetched._replace(records=memoryview(received)[:size])


@dataclass
class Saying(Liar):
    """Returns the same response every time."""

    said: bytes = b""

    def fetch(self, topic: str, partition: int, offset: int, **_: Any) -> Fetched:
        self.asked.append(offset)
        return Fetched(memoryview(self.said), Offset(10**6), Offset(10**6), Offset(0))


def read_from(liar: Liar, end: int, columns: Sequence[str] = ("offset",), **options: str) -> list[Any]:
    fetching._clients[options_for(NOWHERE, **options).cluster] = liar  # type: ignore[assignment]
    return read(NOWHERE, "t", 0, end, columns, **options)


def marker(offset: int, producer: int, kind: int) -> bytes:
    record = Record(_MARKER.pack(0, kind), bytes(6), timestamp=TIME_MS)
    how = {"producer_id": producer, "producer_epoch": 0, "transactional": True, "control": True}
    return bytes(build_batch([record], base_offset=offset, **how))  # type: ignore[arg-type]


def written(offset: int, producer: int, *values: bytes, transactional: bool = True) -> bytes:
    how = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0, "transactional": transactional}
    return batch_at(offset, *values, **how)


GOOD = batch_at(0, b"good")
NEXT = batch_at(1, b"next")
