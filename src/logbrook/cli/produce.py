"""`logbrook produce`: records from lines."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import time
from typing import Annotated, NamedTuple

import typer

from logbrook.cli.choices import Acks, Compression
from logbrook.cli.connection import Bootstrap, Topic, administered
from logbrook.cli.failures import INTERRUPTED, fail, refuse, sentence_of
from logbrook.cli.interrupts import HeldInterrupt, StoppedError
from logbrook.cli.output import plural, print_json
from logbrook.cli.paragraphs import ParagraphCommand
from logbrook.cli.produce_input import LineInput
from logbrook.cli.progress import reading_progress
from logbrook.cli.record_forms import ReadRecord, record_from_json
from logbrook.client.record_writer import RecordWriter
from logbrook.model import LogbrookError
from logbrook.records.batch import Codec
from logbrook.records.record import Header, Record

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class _LineError(LogbrookError):
    """A line that is no record."""


class _Shape(NamedTuple):
    """What a line of text becomes."""

    key: bytes | None
    key_separator: bytes | None
    headers: tuple[Header, ...]
    tombstones: bool

    @property
    def is_plain(self) -> bool:
        """Whether a record is nothing but its line."""
        return self == _Shape(None, None, (), False)

    def record(self, line: bytes, now_ms: int) -> Record:
        """Raises ValueError."""
        key = self.key
        if self.key_separator is not None:
            key, separator, line = line.partition(self.key_separator)
            if not separator:
                raise ValueError(f"it has no key separator {self.key_separator.decode()!r}")
        return Record(key, None if self.tombstones and not line else line, self.headers, now_ms)


@app.command(cls=ParagraphCommand)
def produce(
    topic: Topic,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="Read this instead of standard input.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="What is between key and value in a line."),
    ] = None,
    headers: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="On every record; may be repeated.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Each line is a record as a JSON object, and so is the report.")
    ] = False,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="For every record; else by its key.")
    ] = None,
    tombstone: Annotated[
        bool, typer.Option("--tombstone", "-Z", help="Empty values are null: they delete the key where compacted.")
    ] = False,
    compression: Annotated[Compression, typer.Option("--compression", "-z", help="Of batches.")] = Compression.NONE,
    acks: Annotated[Acks, typer.Option("--acks", help="Who has to have it; with less than all, it may be lost.")] = (
        Acks.ALL
    ),
    bootstrap: Bootstrap = None,
) -> None:
    """Write records to a topic: lines of standard input or of a file.

    Each record is written once, however often it has to be sent (unless --acks says otherwise). How many were written
    is told on standard error; with --json on standard output, as {"topic", "records"}.

    With --json a line is {"key", "value", "headers", "partition", "timestamp"}, all of which may be left out, as
    `logbrook consume --json` writes it: "key_encoding" or "value_encoding" is "base64" for bytes, headers are
    {"name": "value"} or a list of {"key", "value"}, a timestamp is in ms or ISO 8601.

    Examples: echo hello | logbrook produce greetings; logbrook produce orders -f orders.txt -K : -z zstd
    """
    if as_json and not (key is key_separator is None and not headers):
        refuse("--json", "keys and headers are in the JSON objects")
    if key is not None and key_separator is not None:
        refuse("--key-separator", "a key is given for all records, or found in each")
    if key_separator == "":
        refuse("--key-separator", "it is empty")
    shape = _Shape(_bytes(key), _bytes(key_separator), _headers(headers or []), tombstone)
    with administered(bootstrap) as admin, _opened(file) as descriptor:
        writer = RecordWriter(admin.client, topic, acks=acks.number, codec=Codec[compression.name])
        if partition is not None and partition >= writer.partition_count:
            count = plural(writer.partition_count, "partition")
            refuse("--partition", f"{topic} has {count}, counted from 0")
        with reading_progress(descriptor) as on_read, HeldInterrupt() as held:
            _write(writer, LineInput(descriptor, on_read, held), shape, partition, as_json)
    if as_json:
        print_json({"topic": topic, "records": writer.written})
    else:
        typer.echo(_told(writer), err=True)


def _write(writer: RecordWriter, source: LineInput, shape: _Shape, partition: int | None, as_json: bool) -> None:
    """All lines. If not all can be, those before are written, and how many is told with the reason."""
    try:
        with writer:
            try:
                _take_all(writer, source, shape, partition, as_json)
            except (_LineError, StoppedError):
                writer.flush()
                raise
    except StoppedError:
        typer.echo(f"stopped; {_told(writer)}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except _LineError as error:
        fail(f"{error}; {_told(writer)} before it")
    except LogbrookError as error:
        fail(
            f"{sentence_of(error)}; of the {writer.written:,} records before, those that were sent last may be missing"
        )


def _take_all(writer: RecordWriter, source: LineInput, shape: _Shape, partition: int | None, as_json: bool) -> None:
    taken = 0
    for lines in source.runs():
        now_ms = round(time() * 1000)
        if shape.is_plain and partition is None and not as_json:
            writer.write_values(lines, now_ms)
        else:
            _write_each(writer, lines, taken + 1, _reader(shape, partition, now_ms, as_json))
        taken += len(lines)
        if source.is_idle:
            writer.flush()


def _reader(shape: _Shape, partition: int | None, now_ms: int, as_json: bool) -> Callable[[bytes], ReadRecord | None]:
    """What makes a record of a line; None of a blank one between JSON objects."""
    if not as_json:
        return lambda line: ReadRecord(shape.record(line, now_ms), partition)

    def read(line: bytes) -> ReadRecord | None:
        if not line.strip():
            return None
        record, own_partition = record_from_json(line, now_ms)
        if shape.tombstones and not record.value:
            record = record._replace(value=None)
        return ReadRecord(record, own_partition if partition is None else partition)

    return read


def _write_each(
    writer: RecordWriter, lines: list[bytes], first: int, read: Callable[[bytes], ReadRecord | None]
) -> None:
    for number, line in enumerate(lines, first):
        try:
            if (found := read(line)) is not None:
                writer.write(found.record, found.partition)
        except ValueError as error:
            raise _LineError(f"line {number}: {error}") from None


def _told(writer: RecordWriter) -> str:
    return f"{plural(writer.written, 'record')} written to {writer.topic}"


@contextmanager
def _opened(path: str | None) -> Iterator[int]:
    if path is None or path == "-":
        yield sys.stdin.fileno()
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror}")
    try:
        yield descriptor
    except IsADirectoryError:
        fail(f"{path} is a directory")
    finally:
        os.close(descriptor)


def _bytes(text: str | None) -> bytes | None:
    # What the shell gave may be bytes that are no text.
    return None if text is None else os.fsencode(text)


def _headers(given: list[str]) -> tuple[Header, ...]:
    found = []
    for one in given:
        name, separator, value = one.partition("=")
        if not separator or not name:
            refuse("--header", f"{one!r} is not NAME=VALUE")
        found.append((name, os.fsencode(value)))
    return tuple(found)
