"""`logbrook log`: dump, verify, repair, skip, compact, retain and index the log files of a broker.

The commands work on a data directory that no broker has open. `verify`, `compact` and `retain` can also ask a running
broker (--broker).
"""

import os
from contextlib import ExitStack, closing
from itertools import islice
from typing import Annotated, Any

import typer

from logbrook.cli.connection import Bootstrap, Json, connected_admin
from logbrook.cli.failures import FAILED, fail, refuse, report_failures
from logbrook.cli.log_broker import (
    BrokerUnavailableError,
    BrokerUrl,
    check_through_broker,
    run_maintenance,
    verify_in_broker,
)
from logbrook.cli.log_data import (
    ConfigFile,
    DataDirectory,
    OfflineData,
    PartitionNames,
    chosen_partitions,
    locked,
    missing_offsets,
    opened,
    partitions_in,
)
from logbrook.cli.log_dump import (
    dump_file,
    partition_files,
    partition_of,
    print_batch,
    print_batch_json,
    print_batches_header,
)
from logbrook.cli.terminal import Column, ParagraphCommand, Yes, confirm, plural, print_fields, print_json, print_rows
from logbrook.config import CleanupPolicy
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.server.compaction_worker import CompactionWorker
from logbrook.storage.batch_skip import find_skippable, skip_batch
from logbrook.storage.compaction import compact as compact_log
from logbrook.storage.errors import CorruptLogError
from logbrook.storage.log import Log
from logbrook.storage.partition_files import read_checkpoint
from logbrook.storage.paths import INDEX_SUFFIX, LOG_SUFFIX
from logbrook.storage.retention import apply_retention
from logbrook.storage.verification import LogCheckResult, check_log

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)

# Column of rows with the keys topic and partition.
_PARTITION: Column = ("partition", lambda row: f"{row['topic']}-{row['partition']}")
# Later than any file's deletion time.
_END_OF_TIME_MS = 2**62


@app.command(cls=ParagraphCommand)
def dump(
    target: Annotated[
        str, typer.Argument(metavar="PARTITION|FILE", help="Partition such as orders-0, or a segment file.")
    ],
    data: DataDirectory = None,
    from_offset: Annotated[int, typer.Option("--from", metavar="OFFSET", min=0, help="Offset to start at.")] = 0,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Print at most this many batches.")] = None,
    records: Annotated[bool, typer.Option("--records", help="Print the records of each batch too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per batch, one per line.")] = False,
) -> None:
    """Print the contents of log files batch by batch, including damaged ones. Nothing is changed.

    For a partition it prints its segments: after a crash the write-ahead log may have more, which `logbrook log verify`
    recovers first.

    Examples: logbrook log dump orders-0 --from 1000 -n 5 --records; logbrook log dump 00000000000000000000.log

    JSON: a line for each batch with {"file", "position", "bytes", "damage", "base_offset", "last_offset", "records",
    "base_timestamp", "max_timestamp", "timestamp_type", "codec", "leader_epoch", "producer_id", "producer_epoch",
    "base_sequence", "transaction", "delete_horizon_ms", "crc", "crc_ok"}; with --records also "content", a list of
    records as `logbrook consume --json` prints them, and "records_damage".
    """
    with ExitStack() as stack:
        if os.path.isfile(target) or os.sep in target:
            if target.endswith(INDEX_SUFFIX):
                refuse("FILE", f"{target} is an index and has no batches; give the {LOG_SUFFIX} file beside it")
            stack.enter_context(report_failures())
            partition, paths = partition_of(target), [target]
        else:
            partition, paths = _locked_partition(stack, data, target, from_offset)
        batches = (batch for path in paths for batch in dump_file(path, from_offset))
        number = 0
        for number, batch in enumerate(islice(batches, count), 1):
            if as_json:
                print_batch_json(partition, batch, records)
                continue
            if number == 1:
                print_batches_header()
            print_batch(batch, records)
        if not number:
            typer.echo(f"{target} has no batches from offset {from_offset} on", err=True)


@app.command(cls=ParagraphCommand)
def verify(
    partitions: PartitionNames = None,
    data: DataDirectory = None,
    broker: BrokerUrl = None,
    bootstrap: Bootstrap = None,
    as_json: Json = False,
) -> None:
    """Read every byte and report damage. The exit code is 1 if there is any.

    On a data directory it checks checksums, offsets and indexes. An inconsistent index is rebuilt, and a damaged
    partition is quarantined: the broker serves the records before the damage and accepts no appends.

    With --broker a running broker verifies its own files in small steps while it serves.

    With --bootstrap it fetches all records of a running cluster and checks them. With both options it does so only if
    the HTTP listener does not respond.

    Examples: logbrook log verify -d /var/lib/logbrook; logbrook log verify orders --broker http://127.0.0.1:9644

    JSON: a list of {"topic", "partition", "segments", "batches", "records", "bytes", "damage"}, where damage is null or
    {"reason", "file", "position", "offset"}.
    """
    if data is not None and (broker or bootstrap):
        refuse("--data", "it cannot be combined with --broker or --bootstrap")
    if broker is not None and (results := _verified_by(broker, partitions, bootstrap)) is not None:
        _report_results(results, as_json, "stop the broker and run")
        return
    if bootstrap is not None:
        with connected_admin(bootstrap) as admin:
            _report_results(check_through_broker(admin, partitions), as_json, "stop the broker and run")
        return
    with opened(data) as offline:
        for damage in (damage for member in offline.directory.members for damage in member.report.wal_damage):
            typer.echo(f"the write-ahead log: {damage}", err=True)
        _report_results([check_log(log) for log in offline.chosen(partitions)], as_json, "run")


@app.command(cls=ParagraphCommand)
def repair(
    partitions: PartitionNames = None, data: DataDirectory = None, yes: Yes = False, as_json: Json = False
) -> None:
    """Make damaged partitions writable again by dropping the damaged bytes.

    Every intact batch keeps its offset. The original files are kept beside the new ones, with the suffix .damaged.
    Without names it repairs the quarantined partitions; `logbrook log verify` finds others.

    JSON: a list of {"topic", "partition", "bytes_dropped", "kept_aside", "missing_offsets", "end_offset"};
    missing_offsets are pairs of first and last offset, including those that compaction had removed before.
    """
    with opened(data) as offline:
        checked = [log for log in offline.chosen(partitions) if log.corruption or partitions]
        damaged = {log: damage for log in checked if (damage := check_log(log).damage)}
        if not damaged:
            typer.echo("no damage is known; `logbrook log verify` reads every byte", err=True)
            if as_json:
                print_json([])
            return
        for log, damage in damaged.items():
            typer.echo(str(log.corruption or f"{log.partition}: {damage}"), err=True)
        names = ", ".join(str(log.partition) for log in damaged)
        confirm(f"Drop the unreadable bytes of {names}? The original files are kept aside.", yes)
        results = [_repair(offline, log) for log in damaged]
        if as_json:
            print_json(results)


@app.command(cls=ParagraphCommand)
def skip(
    partition: Annotated[str, typer.Argument(metavar="PARTITION", help="Partition such as orders-0.")],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0, help="Offset at which consumers stop.")],
    data: DataDirectory = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Replace a batch that consumers cannot process by an empty one, so that they continue after it.

    The batch keeps its offsets; its records are lost to consumers. A copy of the batch is kept beside the log, with the
    suffix .skipped, for `logbrook log dump FILE`. A damaged batch is a case for `logbrook log repair`.

    Example: logbrook log skip orders-0 4711 -d /var/lib/logbrook

    JSON: {"topic", "partition", "base_offset", "last_offset", "records", "bytes", "fault", "kept_aside"}, where fault
    is the reason why the records cannot be decoded, or null.
    """
    with opened(data) as offline:
        logs = offline.chosen([partition])
        if len(logs) > 1:
            refuse("PARTITION", f"{partition} has {len(logs)} partitions; choose one, such as {logs[0].partition}")
        (log,) = logs
        batch = find_skippable(log, Offset(offset))
        header = batch.header
        typer.echo(
            f"{log.partition}: the batch of offsets {header.base_offset} to {header.last_offset} claims "
            f"{plural(header.count, 'record')} in {header.size:,} bytes; "
            + (f"they cannot be decoded: {batch.fault}" if batch.fault else "they can be decoded"),
            err=True,
        )
        confirm("Replace it by an empty batch? Consumers will not see its records.", yes)
        kept_aside = skip_batch(offline.member_of(log), log.partition, Offset(offset))
        typer.echo(f"the batch is empty now; its bytes are kept as {kept_aside}", err=True)
        if as_json:
            print_json(
                log.partition._asdict()
                | {
                    "base_offset": header.base_offset,
                    "last_offset": header.last_offset,
                    "records": header.count,
                    "bytes": header.size,
                    "fault": batch.fault,
                    "kept_aside": kept_aside,
                }
            )


@app.command(cls=ParagraphCommand)
def compact(
    partitions: PartitionNames = None,
    data: DataDirectory = None,
    broker: BrokerUrl = None,
    active: Annotated[
        bool, typer.Option("--active", help="Roll the active segments first, so that they are compacted too.")
    ] = False,
    yes: Yes = False,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Keep only the newest record of each key, in topics whose cleanup.policy includes compact.

    With --broker a running broker does it.

    JSON: a list of {"topic", "partition", "segments_before", "segments_after", "bytes_before", "bytes_after"}; with
    --broker {"segments_removed", "bytes_removed", "logs_compacted", "bytes_compacted", "files_unlinked",
    "producers_expired"} in total.
    """
    if broker is not None:
        confirm(f"Have {broker} compact {_named(partitions)}? Superseded records are deleted.", yes)
        _maintain(broker, "compaction", partitions, as_json, active=active)
        return
    worker = CompactionWorker()
    with opened(data, config) as offline, closing(worker):
        logs = [log for log in offline.configured(partitions) if CleanupPolicy.COMPACT in log.config.cleanup_policy]
        confirm(f"Compact {plural(len(logs), 'partition')}? Superseded records are deleted.", yes or not logs)
        if active:
            for log in logs:
                log.roll()
            for member in offline.directory.members:
                member.checkpoint()
        now_ms = offline.clock.now_ms()
        rows = [
            log.partition._asdict()
            | {
                "segments_before": result.segments_before,
                "segments_after": result.segments_after,
                "bytes_before": result.bytes_read,
                "bytes_after": result.bytes_written,
            }
            for log in logs
            if (result := compact_log(log, now_ms, force=True, cleaners=worker.cleaner))
        ]
        _remove_files(offline)
        if as_json:
            print_json(rows)
        elif not rows:
            typer.echo(f"there is nothing to compact in {plural(len(logs), 'partition')} with cleanup.policy=compact")
        else:
            sizes = (("size before", "bytes_before"), ("after", "bytes_after"))
            print_rows(rows, (_PARTITION, "segments before", ("after", "segments_after"), *sizes))


@app.command(cls=ParagraphCommand)
def retain(
    partitions: PartitionNames = None,
    data: DataDirectory = None,
    broker: BrokerUrl = None,
    yes: Yes = False,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Delete segments past retention.ms and retention.bytes of their topics.

    With --broker a running broker does it.

    JSON: a list of {"topic", "partition", "segments_removed", "bytes_removed", "start_offset"}; with --broker as for
    `logbrook log compact`.
    """
    if broker is not None:
        question = f"Have {broker} apply retention to {_named(partitions)}? Records past it are deleted."
        confirm(question, yes)
        _maintain(broker, "retention", partitions, as_json)
        return
    with opened(data, config) as offline:
        logs = offline.configured(partitions)
        question = f"Apply retention to {plural(len(logs), 'partition')}? Records past it are deleted."
        confirm(question, yes or not logs)
        rows = [_retain(log, offline.clock.now_ms()) for log in logs]
        _remove_files(offline)
        columns = (_PARTITION, "segments removed", ("size removed", "bytes_removed"), ("starts at", "start_offset"))
        print_rows(rows, columns, as_json=as_json)


@app.command(cls=ParagraphCommand)
def index(partitions: PartitionNames = None, data: DataDirectory = None, as_json: Json = False) -> None:
    """Rebuild the indexes from the logs. Indexes are caches: a broker rebuilds an inconsistent one by itself.

    JSON: a list of {"topic", "partition", "indexes"}.
    """
    with opened(data) as offline:
        rows: list[dict[str, Any]] = []
        errors: list[CorruptLogError] = []
        for log in offline.chosen(partitions):
            try:
                for segment in log.segments:
                    segment.rebuild_index()
            except CorruptLogError as error:
                errors.append(error)
                continue
            rows.append(log.partition._asdict() | {"indexes": len(log.segments)})
        print_rows(rows, (_PARTITION, ("indexes made", "indexes")), as_json=as_json)
        if errors:
            fail(f"{errors[0]}; `logbrook log verify` shows details")


def _locked_partition(
    stack: ExitStack, data: str | None, name: str, from_offset: int
) -> tuple[TopicPartition, list[str]]:
    """Lock the data directory until `stack` closes, and return the partition and its segment files."""
    files = stack.enter_context(locked(data))
    chosen = chosen_partitions(partitions_in(files.root), [name])
    if len(chosen) > 1:
        refuse("PARTITION", f"{name} has {len(chosen)} partitions; choose one, such as {chosen[0]}")
    (partition,) = chosen
    checkpoint = read_checkpoint(files)
    if checkpoint is not None and not checkpoint.clean:
        typer.echo("the broker was not shut down cleanly; its write-ahead log may have more records", err=True)
    return partition, partition_files(files.root, partition, from_offset)


def _report_results(results: list[LogCheckResult], as_json: bool, before_repair: str) -> None:
    """Print verification results; end the command with exit code 1 if there is damage."""
    state: Column = ("state", lambda row: "BAD" if row["damage"] else "good")
    columns = (_PARTITION, "segments", "batches", "records", ("size", "bytes"), state)
    print_rows([result.form() for result in results], columns, as_json=as_json)
    damaged = [result for result in results if result.damage]
    for result in damaged:
        typer.echo(f"{result.partition}: {result.damage}", err=True)
    if damaged:
        names = " ".join(str(result.partition) for result in damaged)
        typer.echo(
            f"error: {plural(len(damaged), 'partition')} of {len(results)} damaged; restore a backup, or "
            f"{before_repair} `logbrook log repair {names}`, which keeps every intact batch",
            err=True,
        )
        raise typer.Exit(FAILED)


def _repair(offline: OfflineData, log: Log) -> dict[str, object]:
    result = offline.member_of(log).repair(log.partition)
    repaired = offline.directory.get(log.partition)
    missing = missing_offsets(repaired)
    gaps = ", ".join(f"{first} to {last}" for first, last in missing)
    typer.echo(
        f"{log.partition} is repaired: {result.bytes_dropped:,} bytes were dropped, "
        f"{f'offsets {gaps} have no records' if missing else 'no offset is missing'}, "
        f"the next offset is {repaired.log_end_offset}; the original files are kept as "
        f"{', '.join(result.kept_aside) or '-'}",
        err=True,
    )
    return log.partition._asdict() | {
        "bytes_dropped": result.bytes_dropped,
        "kept_aside": result.kept_aside,
        "missing_offsets": missing,
        "end_offset": repaired.log_end_offset,
    }


def _retain(log: Log, now_ms: int) -> dict[str, Any]:
    """Apply retention until nothing is left to delete."""
    segments = size_removed = 0
    while True:
        step = apply_retention(log, now_ms)
        segments, size_removed = segments + len(step.removed), size_removed + step.bytes_removed
        if not step.removed:
            removed = {"segments_removed": segments, "bytes_removed": size_removed}
            return log.partition._asdict() | removed | {"start_offset": step.log_start_offset}


def _remove_files(offline: OfflineData) -> None:
    """Delete the files of removed segments without their usual delay: there are no readers."""
    while offline.directory.remove_files(_END_OF_TIME_MS):
        pass


def _verified_by(url: str, partitions: list[str] | None, bootstrap: str | None) -> list[LogCheckResult] | None:
    """Return the broker's results, None if it is unavailable and --bootstrap is given as an alternative."""
    with report_failures():
        try:
            return verify_in_broker(url, partitions)
        except BrokerUnavailableError as error:
            if bootstrap is None:
                fail(f"{error} With --bootstrap HOST:PORT the records of any cluster can be checked")
            typer.echo(f"{error} Reading from {bootstrap} instead", err=True)
            return None


def _named(partitions: list[str] | None) -> str:
    return ", ".join(partitions) if partitions else "all partitions"


def _maintain(url: str, step: str, partitions: list[str] | None, as_json: bool, *, active: bool = False) -> None:
    with report_failures():
        result, errors = run_maintenance(url, step, partitions, active=active)
        if as_json:
            print_json(result)
        else:
            print_fields([(name.replace("_", " "), value) for name, value in result.items()])
        if errors:
            fail(f"the broker could not do all of it: {'; '.join(errors)}")
