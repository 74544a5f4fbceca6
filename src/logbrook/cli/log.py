"""`logbrook log`: the files of a data directory, looked at and looked after."""

import os
from contextlib import ExitStack
from itertools import islice
from typing import Annotated

import typer

from logbrook.cli.confirmation import Yes, confirm
from logbrook.cli.connection import Bootstrap, Json, administered
from logbrook.cli.failures import FAILED, fail, refuse, told_in_a_sentence
from logbrook.cli.log_broker import Broker, NotAskedError, run_maintenance, verify_in_broker
from logbrook.cli.log_checks import check_through_broker, missing_offsets, print_checked
from logbrook.cli.log_data import Config, Data, OfflineData, Partitions, chosen_partitions, locked, opened
from logbrook.cli.log_dump import (
    dump_file,
    partition_files,
    partition_of,
    print_batch,
    print_batch_json,
    print_batches_header,
)
from logbrook.cli.output import plural, print_facts, print_json, print_table, size
from logbrook.cli.paragraphs import ParagraphCommand
from logbrook.config import CleanupPolicy
from logbrook.model import TopicPartition
from logbrook.storage.compaction import compact as compact_log
from logbrook.storage.errors import CorruptLogError
from logbrook.storage.findings import Checked, check_log
from logbrook.storage.log import Log
from logbrook.storage.partition_files import read_checkpoint
from logbrook.storage.paths import INDEX_SUFFIX, LOG_SUFFIX
from logbrook.storage.retention import apply_retention

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Look into a broker's files, and look after them: dump, verify, repair, compact, retain, index.",
)

# No file is due later than this.
_END_OF_TIME_MS = 2**62


@app.command(cls=ParagraphCommand)
def dump(
    what: Annotated[str, typer.Argument(metavar="PARTITION|FILE", help="Such as orders-0, or a segment's file.")],
    data: Data = None,
    from_offset: Annotated[int, typer.Option("--from", metavar="OFFSET", min=0, help="Begin here.")] = 0,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="So many batches at most.")] = None,
    records: Annotated[bool, typer.Option("--records", help="Show the records of each batch too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line instead of a table.")] = False,
) -> None:
    """Print what is in the files of a log, batch by batch, good or bad.

    It changes nothing. Of a partition it shows what is in the segments: after a crash the write-ahead log may have
    more, which `logbrook log verify` brings back first.

    JSON: a line for each batch with {"file", "position", "bytes", "damage", "base_offset", "last_offset", "records",
    "base_timestamp", "max_timestamp", "timestamp_type", "codec", "leader_epoch", "producer_id", "producer_epoch",
    "base_sequence", "transaction", "delete_horizon_ms", "crc", "crc_ok"}; with --records also "content", a list of
    records as `logbrook consume --json` prints them, and "records_damage".
    """
    with ExitStack() as stack:
        if os.path.isfile(what) or os.sep in what:
            if what.endswith(INDEX_SUFFIX):
                refuse("FILE", f"{what} is an index, which has no batches; give the {LOG_SUFFIX} beside it")
            stack.enter_context(told_in_a_sentence())
            partition, paths = partition_of(what), [what]
        else:
            files = stack.enter_context(locked(data))
            there = [one for name in files.list("") if (one := TopicPartition.from_directory(name)) is not None]
            named = chosen_partitions(there, [what])
            if len(named) > 1:
                refuse("PARTITION", f"{what} has {len(named)} partitions; say which, such as {named[0]}")
            (partition,) = named
            paths = partition_files(files.root, partition, from_offset)
            checkpoint = read_checkpoint(files)
            if checkpoint is not None and not checkpoint.clean:
                typer.echo("the broker did not stop in good order; its write-ahead log may have more", err=True)
        found = (batch for path in paths for batch in dump_file(path, from_offset))
        number = 0
        for number, batch in enumerate(islice(found, count), 1):
            if as_json:
                print_batch_json(partition, batch, records)
                continue
            if number == 1:
                print_batches_header()
            print_batch(batch, records)
        if not number:
            typer.echo(f"{what} has no batches from offset {from_offset} on", err=True)


@app.command(cls=ParagraphCommand)
def verify(
    partitions: Partitions = None,
    data: Data = None,
    broker: Broker = None,
    bootstrap: Bootstrap = None,
    as_json: Json = False,
) -> None:
    """Read every byte, and tell what is bad. The exit code is 1 if anything is.

    On a data directory it checks checksums, offsets and indexes. An index that does not fit is made again, and a
    partition with bad bytes is quarantined: a broker serves what is before them, and appends nothing.

    With --broker a running broker does the same to its own files, a little at a time, while it serves.

    With --bootstrap it reads from a running cluster, and checks what that gives to its clients. With both, this is what
    happens where the broker's port for operators cannot be asked.

    JSON: a list of {"topic", "partition", "segments", "batches", "records", "bytes", "damage"}, where damage is null or
    {"reason", "file", "position", "offset"}.
    """
    if data is not None and (broker or bootstrap):
        refuse("--data", "read from a directory, or ask a broker, not both")
    if broker is not None and (checked := _checked_by(broker, partitions, bootstrap)) is not None:
        _tell_checked(checked, as_json, "stop the broker, and see")
        return
    if bootstrap is not None:
        with administered(bootstrap) as admin:
            _tell_checked(check_through_broker(admin, partitions), as_json, "stop the broker, and see")
        return
    with opened(data) as offline:
        for sentence in offline.directory.report.wal_damage:
            typer.echo(f"the write-ahead log: {sentence}", err=True)
        _tell_checked([check_log(log) for log in offline.chosen(partitions)], as_json, "see")


@app.command(cls=ParagraphCommand)
def repair(partitions: Partitions = None, data: Data = None, yes: Yes = False, as_json: Json = False) -> None:
    """Make damaged partitions usable again, without what is bad in them.

    Every good batch stays at its offset. The files as they were are kept beside the new ones, with the ending .damaged.
    Without names it repairs what is known to be damaged: `logbrook log verify` finds out.

    JSON: a list of {"topic", "partition", "bytes_dropped", "kept_aside", "missing_offsets", "end_offset"};
    missing_offsets are pairs of first and last, those that were compacted away before among them.
    """
    with opened(data) as offline:
        chosen = [log for log in offline.chosen(partitions) if log.corruption or (partitions and check_log(log).damage)]
        if not chosen:
            typer.echo("nothing is known to be damaged; `logbrook log verify` reads every byte", err=True)
            if as_json:
                print_json([])
            return
        for log in chosen:
            typer.echo(str(log.corruption), err=True)
        names = ", ".join(str(log.partition) for log in chosen)
        confirm(f"Drop what cannot be read from {names}? The files as they are will be kept aside.", yes)
        forms = [_repair(offline, log) for log in chosen]
        if as_json:
            print_json(forms)


@app.command(cls=ParagraphCommand)
def compact(
    partitions: Partitions = None,
    data: Data = None,
    broker: Broker = None,
    active: Annotated[
        bool, typer.Option("--active", help="Close the segments that are being written first, to compact them too.")
    ] = False,
    yes: Yes = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Keep only the newest record of each key, in topics whose cleanup.policy has compact.

    With --broker a running broker is asked to do it.

    JSON: a list of {"topic", "partition", "segments_before", "segments_after", "bytes_before", "bytes_after"}; with
    --broker {"segments_removed", "bytes_removed", "logs_compacted", "bytes_compacted", "files_unlinked",
    "producers_expired"} for all of them.
    """
    if broker is not None:
        question = f"Have {broker} compact {_named(partitions)}? Records go whose keys have newer ones."
        confirm(question, yes)
        _maintain(broker, "compaction", partitions, as_json, active=active)
        return
    with opened(data, config) as offline:
        logs = [log for log in offline.configured(partitions) if CleanupPolicy.COMPACT in log.config.cleanup_policy]
        confirm(f"Compact {plural(len(logs), 'partition')}? Records go whose keys have newer ones.", yes or not logs)
        if active:
            for log in logs:
                log.roll()
            offline.directory.checkpoint()
        now_ms = offline.clock.now_ms()
        done = [(log.partition, compacted) for log in logs if (compacted := compact_log(log, now_ms, force=True))]
        _remove_files(offline)
        if as_json:
            print_json(
                [
                    {
                        "topic": partition.topic,
                        "partition": partition.partition,
                        "segments_before": one.segments_before,
                        "segments_after": one.segments_after,
                        "bytes_before": one.bytes_read,
                        "bytes_after": one.bytes_written,
                    }
                    for partition, one in done
                ]
            )
        elif not done:
            typer.echo(f"there is nothing to compact in {plural(len(logs), 'partition')} with cleanup.policy=compact")
        else:
            print_table(
                ("partition", "segments before", "after", "size before", "after"),
                [
                    (str(name), one.segments_before, one.segments_after, size(one.bytes_read), size(one.bytes_written))
                    for name, one in done
                ],
            )


@app.command(cls=ParagraphCommand)
def retain(
    partitions: Partitions = None,
    data: Data = None,
    broker: Broker = None,
    yes: Yes = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Remove what is older or larger than retention.ms and retention.bytes of the topics allow.

    With --broker a running broker is asked to do it.

    JSON: a list of {"topic", "partition", "segments_removed", "bytes_removed", "start_offset"}; with --broker as
    `logbrook log compact` has it.
    """
    if broker is not None:
        question = f"Have {broker} apply retention to {_named(partitions)}? Records that are past it are deleted."
        confirm(question, yes)
        _maintain(broker, "retention", partitions, as_json)
        return
    with opened(data, config) as offline:
        logs = offline.configured(partitions)
        question = f"Apply retention to {plural(len(logs), 'partition')}? Records that are past it are deleted."
        confirm(question, yes or not logs)
        rows = [_retain(log, offline.clock.now_ms()) for log in logs]
        _remove_files(offline)
        if as_json:
            names = ("topic", "partition", "segments_removed", "bytes_removed", "start_offset")
            print_json(
                [dict(zip(names, (*log.partition, *row), strict=True)) for log, row in zip(logs, rows, strict=True)]
            )
            return
        print_table(
            ("partition", "segments removed", "size removed", "starts at"),
            [(str(log.partition), row[0], size(row[1]), row[2]) for log, row in zip(logs, rows, strict=True)],
        )


@app.command(cls=ParagraphCommand)
def index(partitions: Partitions = None, data: Data = None, as_json: Json = False) -> None:
    """Make the indexes again from the logs. They are caches: a broker does so by itself where one does not fit.

    JSON: a list of {"topic", "partition", "indexes"}.
    """
    with opened(data) as offline:
        rows: list[tuple[TopicPartition, int]] = []
        damaged: list[CorruptLogError] = []
        for log in offline.chosen(partitions):
            try:
                for segment in log.segments:
                    segment.rebuild_index()
            except CorruptLogError as error:
                damaged.append(error)
                continue
            rows.append((log.partition, len(log.segments)))
        if as_json:
            print_json([{"topic": one.topic, "partition": one.partition, "indexes": count} for one, count in rows])
        else:
            print_table(("partition", "indexes made"), [(str(one), count) for one, count in rows])
        if damaged:
            fail(f"{damaged[0]}; `logbrook log verify` tells more")


def _tell_checked(checked: list[Checked], as_json: bool, see: str) -> None:
    if as_json:
        print_json([one.form() for one in checked])
    else:
        print_checked(checked)
    bad = [one for one in checked if one.damage]
    for one in bad:
        typer.echo(f"{one.partition}: {one.damage}", err=True)
    if bad:
        names = " ".join(str(one.partition) for one in bad)
        typer.echo(
            f"error: {plural(len(bad), 'partition')} of {len(checked)} damaged; restore from a backup, or {see} "
            f"`logbrook log repair {names}`, which keeps all that is good",
            err=True,
        )
        raise typer.Exit(FAILED)


def _repair(offline: OfflineData, log: Log) -> dict[str, object]:
    repaired = offline.directory.repair(log.partition)
    again = offline.directory.get(log.partition)
    missing = missing_offsets(again)
    gaps = ", ".join(f"{first} to {last}" for first, last in missing)
    typer.echo(
        f"{log.partition} is repaired: {repaired.bytes_dropped:,} bytes were dropped, "
        f"{f'the offsets {gaps} are without records' if missing else 'no offset is missing'}, "
        f"it goes on at {again.log_end_offset}; the damaged files are kept as {', '.join(repaired.kept_aside) or '-'}",
        err=True,
    )
    return {
        "topic": log.partition.topic,
        "partition": log.partition.partition,
        "bytes_dropped": repaired.bytes_dropped,
        "kept_aside": repaired.kept_aside,
        "missing_offsets": missing,
        "end_offset": again.log_end_offset,
    }


def _retain(log: Log, now_ms: int) -> tuple[int, int, int]:
    """How many segments and bytes went, and where the log starts now."""
    segments = size_removed = 0
    while True:
        step = apply_retention(log, now_ms)
        segments, size_removed = segments + len(step.removed), size_removed + step.bytes_removed
        if not step.removed:
            return segments, size_removed, step.log_start_offset


def _remove_files(offline: OfflineData) -> None:
    """Nobody reads them any more, so they need not wait."""
    while offline.directory.remove_files(_END_OF_TIME_MS):
        pass


def _checked_by(url: str, partitions: list[str] | None, bootstrap: str | None) -> list[Checked] | None:
    """What the broker found; None if it cannot be asked and there is another way."""
    with told_in_a_sentence():
        try:
            return verify_in_broker(url, partitions)
        except NotAskedError as error:
            if bootstrap is None:
                fail(f"{error} Any cluster's records can be read with --bootstrap HOST:PORT")
            typer.echo(f"{error} Reading from {bootstrap} instead", err=True)
            return None


def _named(partitions: list[str] | None) -> str:
    return ", ".join(partitions) if partitions else "all partitions"


def _maintain(url: str, step: str, partitions: list[str] | None, as_json: bool, *, active: bool = False) -> None:
    with told_in_a_sentence():
        done, errors = run_maintenance(url, step, partitions, active=active)
        if as_json:
            print_json(done)
        else:
            print_facts([(name.replace("_", " "), value) for name, value in done.items()])
        if errors:
            fail(f"the broker could not do all of it: {'; '.join(errors)}")
