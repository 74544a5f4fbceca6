"""`logbrook produce`: write records to a topic, one per line of files or of standard input."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from time import time
from typing import Annotated, NamedTuple

import typer

from logbrook.cli.arguments import Acks, Compression
from logbrook.cli.connection import Bootstrap, Topic, connected_admin
from logbrook.cli.failures import HeldInterrupt, StoppedError, describe_error, fail, refuse
from logbrook.cli.line_input import LINE_END, LineInput
from logbrook.cli.produce_template import INPUT_LETTERS, InputTemplate, parse_template
from logbrook.cli.records import ParsedRecord, record_from_json, unescape
from logbrook.cli.terminal import ParagraphCommand, plural, print_json, reading_progress
from logbrook.client.record_writer import RecordWriter
from logbrook.model import LogbrookError
from logbrook.records.batch import Codec
from logbrook.records.record import Header, Record

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


_STANDARD_INPUT = "-"


class _LineError(LogbrookError):
    """A line cannot be parsed as a record."""


class _LineFormat(NamedTuple):
    """Format of an input line. `partition` is that of every record; None if the line or the key decides."""

    key: bytes | None = None
    key_separator: bytes | None = None
    headers: tuple[Header, ...] = ()
    tombstones: bool = False
    partition: int | None = None
    is_json: bool = False
    template: InputTemplate | None = None

    def split(self, lines: list[bytes]) -> tuple[list[bytes] | None, list[bytes]] | None:
        """Return the keys, if records have any, and the values; None if the lines must be parsed one by one."""
        if self.is_json or self.template is not None:
            return None
        if self.key is not None:
            return [self.key] * len(lines), lines
        if self.key_separator is None:
            return None, lines
        # Key, separator and value of each line, one after the other. A missing separator is empty.
        parts = [*chain.from_iterable(map(bytes.partition, lines, repeat(self.key_separator)))]
        # A line without a separator is an error with the line's number.
        return (parts[::3], parts[2::3]) if parts[1::3].count(self.key_separator) == len(lines) else None

    def parse(self, line: bytes, now_ms: int) -> ParsedRecord | None:
        """Return None for a blank line between JSON objects. Raises ValueError with a message for the user."""
        if self.is_json and not line.strip():
            return None
        if self.is_json:
            record, partition = record_from_json(line, now_ms)
        elif self.template is not None:
            record, partition = self.template.parse(line, self.key, self.headers, now_ms)
        else:
            record, partition = self._record(line, now_ms), None
        if self.tombstones and not record.value:
            record = record._replace(value=None)
        return ParsedRecord(record, partition if self.partition is None else self.partition)

    def _record(self, line: bytes, now_ms: int) -> Record:
        key = self.key
        if self.key_separator is not None:
            key, separator, line = line.partition(self.key_separator)
            if not separator:
                raise ValueError(f"it has no key separator {os.fsdecode(self.key_separator)!r}")
        return Record(key, line, self.headers, now_ms)


_Paths = Annotated[list[str] | None, typer.Argument(metavar="FILE...", help="Files to read instead of standard input.")]
_Files = Annotated[
    list[str] | None, typer.Option("--file", "-f", metavar="FILE", help="The same as FILE...; repeatable.")
]
_Format = Annotated[str, typer.Option("--format", "-F", metavar="raw|json|TEMPLATE", help="Format of a line.")]
_Delimiter = Annotated[
    str | None, typer.Option("--delimiter", "-D", metavar="TEXT", help="Text between records; default: a line end.")
]


@app.command(cls=ParagraphCommand, epilog=f"A TEMPLATE has {INPUT_LETTERS}. TEXT has the same escapes.")
def produce(
    topic: Topic,
    paths: _Paths = None,
    files: _Files = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every record.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="Separator of key and value in a line."),
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header of every record; repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json; the report is JSON too.")] = False,
    form: _Format = "raw",
    delimiter: _Delimiter = None,
    whole: Annotated[bool, typer.Option("--whole", help="Each file is one record, or all of standard input.")] = False,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Partition of every record; default: by key.")
    ] = None,
    tombstone: Annotated[
        bool, typer.Option("--tombstone", "-Z", help="Write empty values as null, which deletes keys by compaction.")
    ] = False,
    compression: Annotated[
        Compression, typer.Option("--compression", "-z", help="Codec of the batches.")
    ] = Compression.NONE,
    acks: Annotated[
        Acks, typer.Option("--acks", help="Replicas that must acknowledge; with less than all, records may be lost.")
    ] = Acks.ALL,
    bootstrap: Bootstrap = None,
) -> None:
    """Write records to a topic, one per line of standard input or of files.

    The producer is idempotent: a retry does not write a record twice (with --acks all). The number of records written
    is reported on standard error; with --json on standard output, as {"topic", "records"}.

    A line of JSON is {"key", "value", "headers", "partition", "timestamp"}, all optional, as `logbrook consume --json`
    prints it: "key_encoding" or "value_encoding" is "base64" for bytes, headers are {"name": "value"} or a list of
    {"key", "value"}, a timestamp is in ms or ISO 8601. Other fields are refused. A file is checked completely before
    its first record is written, a pipe as far as it has been read.

    In a template, a field ends where the text after it occurs first, and the last one at the end of the line.

    Examples: echo hello | logbrook produce greetings; logbrook produce orders orders.txt -K : -z zstd; logbrook
    produce orders -F '%k,%v' < orders.csv; logbrook produce scans --whole *.pdf
    """
    separator = _separator(delimiter, whole)
    line_format = _LineFormat(
        _bytes(key),
        None if key_separator is None else unescape(key_separator, "--key-separator"),
        _parse_headers(headers or []),
        tombstone,
        partition,
        as_json or form == "json",
        None if as_json or form in ("raw", "json") else parse_template(form, separator or LINE_END),
    )
    _check_combination(line_format, form, as_json, whole)
    inputs = [*(files or []), *(paths or [])] or [_STANDARD_INPUT]
    _check_files(inputs)
    with connected_admin(bootstrap) as admin:
        writer = RecordWriter(admin.client, topic, acks=acks.number, codec=Codec[compression.name])
        if partition is not None and partition >= writer.partition_count:
            refuse("--partition", f"{topic} has {plural(writer.partition_count, 'partition')}, numbered from 0")
        with HeldInterrupt() as held:
            _write(writer, _Inputs(inputs, held, separator), line_format)
    if as_json:
        print_json({"topic": topic, "records": writer.written})
    else:
        typer.echo(_report(writer), err=True)


class _Inputs(NamedTuple):
    """The files to read, "-" for standard input, and the delimiter of their lines, None if each is one record."""

    paths: list[str]
    held: HeldInterrupt
    delimiter: bytes | None

    def write(self, writer: RecordWriter, line_format: _LineFormat) -> None:
        """Write the lines of all files. Raises _LineError."""
        for path in self.paths:
            with _opened(path) as descriptor, reading_progress(descriptor) as on_read:
                try:
                    _write_lines(writer, LineInput(descriptor, on_read, self.held, self.delimiter), line_format)
                except _LineError as error:
                    raise _LineError(f"{path}, {error}" if len(self.paths) > 1 else str(error)) from None


def _separator(delimiter: str | None, whole: bool) -> bytes | None:
    """Return the text between records, None if each file is one."""
    if whole:
        if delimiter is not None:
            refuse("--delimiter", "it cannot be combined with --whole")
        return None
    separator = LINE_END if delimiter is None else unescape(delimiter, "--delimiter")
    if not separator:
        refuse("--delimiter", "it is empty; --whole makes each file one record")
    return separator


def _check_combination(line_format: _LineFormat, form: str, as_json: bool, whole: bool) -> None:
    """End the command if options contradict each other."""
    key, key_separator, template = line_format.key, line_format.key_separator, line_format.template
    if as_json and form not in ("raw", "json"):
        refuse("--format", "it cannot be combined with --json, which is a format")
    if line_format.is_json and not (key is key_separator is None and not line_format.headers):
        refuse("--json", "keys and headers are in the JSON objects: leave out --key, --key-separator and --header")
    if key is not None and key_separator is not None:
        refuse("--key-separator", "it cannot be combined with --key")
    if key_separator == b"":
        refuse("--key-separator", "it is empty")
    if template is not None and key_separator is not None:
        refuse("--key-separator", "it cannot be combined with a template, which has %k")
    if template is not None and key is not None and "k" in template.letters:
        refuse("--key", "the template has %k, which is the key")
    if whole and (line_format.is_json or template is not None or key_separator is not None):
        refuse("--whole", "the whole input is the value: leave out --json, --format and --key-separator")


def _write(writer: RecordWriter, inputs: _Inputs, line_format: _LineFormat) -> None:
    """Write all lines. On an error, the lines before it are written and counted in the message."""
    try:
        with writer:
            try:
                inputs.write(writer, line_format)
            except (_LineError, StoppedError):
                writer.flush()
                raise
    except StoppedError as stop:
        typer.echo(f"stopped; {_report(writer)}", err=True)
        raise typer.Exit(stop.exit_code) from None
    except _LineError as error:
        fail(f"{error}; {_report(writer)} before it")
    except LogbrookError as error:
        fail(f"{describe_error(error)}; {writer.written:,} records were sent, and the last of them may be lost")


def _write_lines(writer: RecordWriter, source: LineInput, line_format: _LineFormat) -> None:
    if line_format.is_json:
        _check_file(writer, source, line_format)
    line_count = 0
    for lines in source.runs():
        now_ms = round(time() * 1000)
        split = line_format.split(lines)
        if split is not None:
            keys, values = split
            writer.write_values(
                values,
                now_ms,
                keys=keys,
                partition=line_format.partition,
                headers=line_format.headers,
                empty_is_null=line_format.tombstones,
            )
        else:
            records = _parsed(writer, lines, line_count + 1, line_format, now_ms)
            # JSON of a pipe is checked as far as it has been read before any of it is written.
            for record, partition in [*records] if line_format.is_json else records:
                writer.write(record, partition)
        line_count += len(lines)
        if source.is_idle:
            writer.flush()


def _check_file(writer: RecordWriter, source: LineInput, line_format: _LineFormat) -> None:
    """Parse all lines of a regular file, so that an invalid one is reported before anything is written."""
    line_count = 0
    for lines in source.preview():
        for _ in _parsed(writer, lines, line_count + 1, line_format, now_ms=0):
            pass
        line_count += len(lines)


def _parsed(
    writer: RecordWriter, lines: list[bytes], first_number: int, line_format: _LineFormat, now_ms: int
) -> Iterator[ParsedRecord]:
    """Parse lines for `writer`. Raises _LineError with the number of an invalid line."""
    for number, line in enumerate(lines, first_number):
        try:
            parsed = line_format.parse(line, now_ms)
            if parsed is not None and parsed.partition is not None:
                writer.check_partition(parsed.partition)
        except ValueError as error:
            raise _LineError(f"line {number}: {error}") from None
        if parsed is not None:
            yield parsed


def _report(writer: RecordWriter) -> str:
    return f"{plural(writer.written, 'record')} written to {writer.topic}"


def _check_files(paths: list[str]) -> None:
    """End the command if a file cannot be read, before anything of the others is written."""
    for path in paths:
        if path == _STANDARD_INPUT:
            continue
        try:
            os.stat(path)
        except OSError as error:
            fail(f"{path} cannot be read: {error.strerror}")
        if os.path.isdir(path):
            fail(f"{path} is a directory")


@contextmanager
def _opened(path: str) -> Iterator[int]:
    if path == _STANDARD_INPUT:
        yield sys.stdin.fileno()
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror}")
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _bytes(text: str | None) -> bytes | None:
    # Arguments may hold bytes that are not valid text; fsencode restores them.
    return None if text is None else os.fsencode(text)


def _parse_headers(arguments: list[str]) -> tuple[Header, ...]:
    headers = []
    for argument in arguments:
        name, separator, value = argument.partition("=")
        if not separator or not name:
            refuse("--header", f"{argument!r} is not NAME=VALUE")
        headers.append((name, os.fsencode(value)))
    return tuple(headers)
