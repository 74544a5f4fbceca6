"""`logbrook consume`: print the records of topics, up to the end or continuously, alone or as a group member."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer

from logbrook.cli.arguments import PLACE_EPILOG, parse_offset_spec
from logbrook.cli.connection import Bootstrap, Partitions, connected_admin, group_names
from logbrook.cli.consume_readers import ConsumeReader, GroupReader, PartitionsReader
from logbrook.cli.failures import HeldInterrupt, StoppedError, fail, refuse, termination_as_interrupt
from logbrook.cli.record_output import RecordOutput, open_output
from logbrook.cli.records import TEMPLATE_LETTERS, template_of
from logbrook.cli.terminal import ParagraphCommand
from logbrook.cli.topic import chosen_partitions
from logbrook.cli.topic_patterns import PATTERN_EPILOG, TopicPatterns, TopicSelection, chosen_topics
from logbrook.client.admin import Admin
from logbrook.client.offset_specs import Earliest
from logbrook.client.records_reader import FETCH_BYTES_MAX
from logbrook.model import TopicPartition
from logbrook.records.errors import RecordsError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

# For up to this many records, fetches are small: decoding more than needed would delay the output.
_FEW_RECORDS = 1_000
_FEW_RECORDS_BYTES = 64 << 10


class _Isolation(StrEnum):
    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


@app.command(cls=ParagraphCommand, epilog=f"{PLACE_EPILOG}\n\n{PATTERN_EPILOG}\n\nA TEMPLATE has {TEMPLATE_LETTERS}.")
def consume(
    names: TopicPatterns,
    partitions: Partitions = None,
    start: Annotated[
        str | None, typer.Option("--from", "-o", metavar="PLACE", help="Position to start at; default: the start.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="PLACE", help="Position to stop at; default: the current end.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after this many records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep reading new records until Ctrl-C.")] = False,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="Join this group, and commit its offsets.", autocompletion=group_names),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", "-F", metavar="raw|json|hex|TEMPLATE", help="Output format of a record.")
    ] = "raw",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    print_key: Annotated[bool, typer.Option("--print-key", help="raw: print the key before the value.")] = False,
    print_headers: Annotated[bool, typer.Option("--print-headers", help="raw: print headers before it.")] = False,
    print_offset: Annotated[
        bool, typer.Option("--print-offset", help="raw: print PARTITION:OFFSET before it.")
    ] = False,
    print_timestamp: Annotated[bool, typer.Option("--print-timestamp", help="raw: print the time before it.")] = False,
    separator: Annotated[str, typer.Option("--separator", help="Text between these; default: a tab.")] = "\\t",
    isolation: Annotated[
        _Isolation,
        typer.Option("--isolation", help="read_committed skips records of open and aborted transactions."),
    ] = _Isolation.COMMITTED,
    bootstrap: Bootstrap = None,
) -> None:
    """Print the records of topics up to the current end, or with --follow also new ones.

    JSON: an object per line, {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}, with a list of
    {"key", "value"}. A key or value that is not UTF-8 is base64, and "key_encoding" or "value_encoding" beside it is
    "base64". `logbrook produce --json` reads the same format.

    A group member starts at the group's committed offsets, and where there are none at --from; printed records are
    committed. With --follow, Ctrl-C and SIGTERM are the normal end (exit code 0), otherwise interruptions (130, 143).
    Partitions that are added to the topics meanwhile are read from their start, and so are new topics that match a
    pattern. While the broker is away, --follow reconnects.

    On a terminal, control characters in records are shown as \\x1b, so that they cannot act on it.

    Examples: logbrook consume orders -o -10 -f; logbrook consume orders -F '%p:%o %k %v\\n'
    """
    if follow and until is not None:
        refuse("--until", "it cannot be combined with --follow, which has no end")
    if group is not None and (partitions or until is not None):
        refuse("--group", "a group assigns partitions and offsets itself: leave out --partition and --until")
    template = template_of(
        key=print_key, headers=print_headers, offset=print_offset, timestamp=print_timestamp, separator=separator
    )
    chosen_format = _format_of(form, as_json, template)
    begin = Earliest() if start is None else parse_offset_spec(start, "--from")
    end = None if until is None else parse_offset_spec(until, "--until")
    committed_only = isolation is _Isolation.COMMITTED
    bytes_max = FETCH_BYTES_MAX if count is None or count > _FEW_RECORDS else _FEW_RECORDS_BYTES
    output = open_output(chosen_format, sys.stdout.buffer, count)
    with connected_admin(bootstrap) as admin, termination_as_interrupt(), _interrupt_ends(follow), _damage_reported():
        topics, selection = chosen_topics(admin, names), TopicSelection(admin, names)
        reader: ConsumeReader
        if group is None:
            chosen = _partitions(admin, topics, partitions)
            growing = selection if follow and not partitions else None
            reader = PartitionsReader(admin, chosen, begin, end, follow, committed_only, bytes_max, growing)
        else:
            reader = GroupReader(admin, group, selection, begin, follow, committed_only, bytes_max)
        _copy(reader, output)


def _copy(reader: ConsumeReader, output: RecordOutput) -> None:
    # Ctrl-C and SIGTERM are held back between printing and committing: otherwise printed records would be read again.
    with reader, HeldInterrupt() as held:
        while not output.is_full and not reader.is_done:
            with held.allowed():
                runs = reader.read()
            reader.mark_printed(output.write(runs))
            if output.damage is not None:
                raise output.damage


def _partitions(admin: Admin, topics: list[str], numbers: list[int] | None) -> list[TopicPartition]:
    return [
        partition for topic in topics for partition in chosen_partitions(topic, admin.client.partitions(topic), numbers)
    ]


def _format_of(form: str, as_json: bool, template: str) -> str:
    has_template = template != template_of(key=False, headers=False, offset=False, timestamp=False, separator="")
    if has_template and (as_json or form != "raw"):
        refuse("--format", "the --print-... options are for raw only; a template has letters for the same")
    if as_json and form not in ("raw", "json"):
        refuse("--format", "it cannot be combined with --json, which is a format")
    return "json" if as_json else template if has_template else form


@contextmanager
def _interrupt_ends(follow: bool) -> Iterator[None]:
    """With --follow, treat Ctrl-C and SIGTERM as the normal end."""
    try:
        yield
    except (KeyboardInterrupt, StoppedError) as stop:
        if not follow:
            raise stop.interrupt if isinstance(stop, StoppedError) else stop from None


@contextmanager
def _damage_reported() -> Iterator[None]:
    try:
        yield
    except RecordsError as error:
        fail(f"a batch cannot be read: {error}; --from with a later offset skips it")
