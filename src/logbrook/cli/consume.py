"""`logbrook consume`: records, printed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer

from logbrook.cli.connection import Bootstrap, administered, group_names, topic_names
from logbrook.cli.consume_output import RecordOutput
from logbrook.cli.consume_reading import GroupReading, PlainReading, Reading
from logbrook.cli.failures import fail, refuse
from logbrook.cli.interrupts import HeldInterrupt, StoppedError
from logbrook.cli.moments import EPILOG, position_of
from logbrook.cli.paragraphs import ParagraphCommand
from logbrook.cli.record_format import LETTERS, Format, format_of, template_of
from logbrook.cli.topic import chosen_partitions
from logbrook.client.admin import Admin
from logbrook.client.positions import Start
from logbrook.client.records_reader import FETCH_BYTES_MAX
from logbrook.model import TopicPartition
from logbrook.records.errors import RecordsError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


# Who wants a few records does not wait for more to be decoded than that.
_FEW = 1_000
_FEW_BYTES = 64 << 10


class _Isolation(StrEnum):
    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


@app.command(cls=ParagraphCommand, epilog=f"{EPILOG}\n\nA TEMPLATE has {LETTERS}.")
def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Their names.", autocompletion=topic_names)],
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; may be given again.")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", "-o", metavar="PLACE", help="Where to begin; else at the start.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="PLACE", help="Where to stop; else at what is the end now.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="Read as a member of this group, and commit.", autocompletion=group_names),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", "-F", metavar="raw|json|hex|TEMPLATE", help="How to write a record.")
    ] = "raw",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    print_key: Annotated[bool, typer.Option("--print-key", help="With raw: the key before the value.")] = False,
    print_headers: Annotated[bool, typer.Option("--print-headers", help="With raw: the headers before.")] = False,
    print_offset: Annotated[bool, typer.Option("--print-offset", help="With raw: PARTITION:OFFSET before.")] = False,
    print_timestamp: Annotated[bool, typer.Option("--print-timestamp", help="With raw: the time before.")] = False,
    separator: Annotated[str, typer.Option("--separator", help="Between these; a tab if not given.")] = "\\t",
    isolation: Annotated[
        _Isolation, typer.Option("--isolation", help="With or without what transactions have not committed.")
    ] = _Isolation.COMMITTED,
    bootstrap: Bootstrap = None,
) -> None:
    """Print the records of topics: what is there, or with --follow what comes too.

    JSON: an object a line, {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}, with a list of
    {"key", "value"}. A key or value that is not UTF-8 is base64, and "key_encoding" or "value_encoding" beside it says
    so. `logbrook produce --json` takes the same.

    As a member of a group it begins where the group is, and else where --from says; what was printed is committed.
    Ctrl-C ends --follow as it should be (exit code 0); anything else it interrupts (130). Partitions that are added to
    the topics meanwhile are followed too, from their start.

    Examples: logbrook consume orders -o -10 -f; logbrook consume orders -F '%p:%o %k %v\\n'
    """
    if follow and until is not None:
        refuse("--until", "it cannot go on for ever and stop")
    if group is not None and (partitions or until is not None):
        refuse("--group", "a group decides itself what its members read")
    template = template_of(
        key=print_key, headers=print_headers, offset=print_offset, timestamp=print_timestamp, separator=separator
    )
    chosen = _format_of(form, as_json, template)
    begin = Start() if start is None else position_of(start, "--from")
    end = None if until is None else position_of(until, "--until")
    committed_only = isolation is _Isolation.COMMITTED
    bytes_max = FETCH_BYTES_MAX if count is None or count > _FEW else _FEW_BYTES
    output = RecordOutput(chosen, sys.stdout.buffer, count)
    with administered(bootstrap) as admin, _ended_by_interrupt(follow), _damage_told():
        reading: Reading
        if group is None:
            found = _partitions(admin, topics, partitions)
            growing = topics if follow and not partitions else ()
            reading = PlainReading(admin, found, begin, end, follow, committed_only, bytes_max, growing)
        else:
            reading = GroupReading(admin, group, topics, begin, follow, committed_only, bytes_max)
        # Between printing and saying so there is no stop, or what was printed would come again.
        with reading, HeldInterrupt() as held:
            while not output.is_full and not reading.is_done:
                with held.allowed():
                    runs = reading.read()
                reading.printed(output.write(runs))


def _partitions(admin: Admin, topics: list[str], wanted: list[int] | None) -> list[TopicPartition]:
    return [
        one
        for topic in dict.fromkeys(topics)
        for one in chosen_partitions(topic, admin.client.partitions(topic), wanted)
    ]


def _format_of(form: str, as_json: bool, template: str) -> Format:
    is_template_wanted = template != template_of(key=False, headers=False, offset=False, timestamp=False, separator="")
    if is_template_wanted and (as_json or form != "raw"):
        refuse("--format", "--print-... are for raw; a template has letters for them")
    if as_json and form not in ("raw", "json"):
        refuse("--format", "--json is a format of its own")
    return format_of("json" if as_json else template if is_template_wanted else form)


@contextmanager
def _ended_by_interrupt(follow: bool) -> Iterator[None]:
    """Following has no other end."""
    try:
        yield
    except (KeyboardInterrupt, StoppedError):
        if not follow:
            raise KeyboardInterrupt from None


@contextmanager
def _damage_told() -> Iterator[None]:
    try:
        yield
    except RecordsError as error:
        fail(f"a batch cannot be read: {error}; --from with an offset behind it skips it")
