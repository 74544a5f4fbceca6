"""Contents of segment files batch by batch, valid or damaged, for `logbrook log dump`.

Nothing is recovered. A batch with a wrong checksum is shown with the fields of its header if its size is plausible;
otherwise the rest of the file is shown as one unreadable range. Blocks that the disk cannot read are shown as zeros.
"""

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import typer

from logbrook.cli.arguments import iso_time
from logbrook.cli.failures import fail
from logbrook.cli.records import record_as_json
from logbrook.model import TopicPartition
from logbrook.model.text import printable
from logbrook.ports.os_files import OsFile
from logbrook.records.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    MAGIC_V2,
    NO_PRODUCER_ID,
    BatchHeader,
    Codec,
    check_batch,
    read_header,
)
from logbrook.records.control import read_marker
from logbrook.records.errors import RecordsError
from logbrook.records.reader import iter_records
from logbrook.records.record import RawRecord
from logbrook.storage.paths import parse_log
from logbrook.storage.repair import read_contents

_DECOMPRESSED_BYTES_MAX = 128 << 20
_VALUE_CHARACTERS_MAX = 60
_COLUMNS = (
    ("offset", 12),
    ("last", 12),
    ("records", 7),
    ("bytes", 9),
    ("time", 24),
    ("codec", 6),
    ("producer", 8),
    ("epoch", 5),
    ("sequence", 10),
    ("transaction", 11),
    ("crc", 4),
)


class DumpedBatch(NamedTuple):
    """A batch in a file, or, without a header, a range of bytes that is not a batch. `damage` says what is wrong."""

    file: str
    position: int
    size: int
    header: BatchHeader | None
    damage: str | None
    data: memoryview


def partition_files(root: str, partition: TopicPartition, from_offset: int) -> list[str]:
    """Return the segment files of a partition that may hold `from_offset` or later offsets, in order."""
    directory = os.path.join(root, partition.directory)
    names = sorted(name for name in os.listdir(directory) if parse_log(name) is not None)
    earlier = {name for name, following in pairwise(names) if (parse_log(following) or 0) <= from_offset}
    return [os.path.join(directory, name) for name in names if name not in earlier]


def partition_of(path: str) -> TopicPartition:
    """Return the partition of a segment file by the name of its directory; number -1 if that is not a partition."""
    name = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return TopicPartition.from_directory(name) or TopicPartition(name, -1)


def dump_file(path: str, from_offset: int) -> Iterator[DumpedBatch]:
    """Yield every batch that holds `from_offset` or a later offset; end the command if the file cannot be read.

    The data of a batch is valid until the next one is yielded.
    """
    with _contents(path) as data:
        position = 0
        while position < len(data):
            batch = _batch_at(path, data, position)
            position += batch.size
            try:
                if batch.header is None or batch.header.last_offset >= from_offset:
                    yield batch
            finally:
                # A file cannot be unmapped while views of it exist.
                batch.data.release()


def print_batches_header() -> None:
    typer.secho("  ".join(name.upper().ljust(width) for name, width in _COLUMNS).rstrip(), bold=True)


def print_batch(batch: DumpedBatch, with_records: bool) -> None:
    """Print a row of the table, the damage if there is any, and the records below it."""
    if batch.header is None:
        message = f"{batch.file}, byte {batch.position}: {batch.size:,} bytes are not a batch: {batch.damage}"
        typer.secho(message, fg="red")
        return
    form = batch_form(batch)
    producer = (form["producer_id"], form["producer_epoch"], form["base_sequence"])
    cells = (
        form["base_offset"],
        form["last_offset"],
        form["records"],
        form["bytes"],
        iso_time(form["max_timestamp"]),
        form["codec"],
        *(producer if form["producer_id"] is not None else ("-", "-", "-")),
        form["transaction"] or "-",
        "ok" if form["crc_ok"] else "BAD",
    )
    line = "  ".join(str(cell).ljust(width) for cell, (_, width) in zip(cells, _COLUMNS, strict=True)).rstrip()
    typer.echo(line)
    if batch.damage:
        typer.secho(f"    {batch.file}, byte {batch.position}: {batch.damage}", fg="red")
    if with_records:
        for record in _records(batch):
            if isinstance(record, str):
                typer.secho(f"    {record}", fg="red")
            else:
                typer.echo(f"    {record.offset}  {iso_time(record.timestamp)}  {_shown_record(record)}")


def print_batch_json(partition: TopicPartition, batch: DumpedBatch, with_records: bool) -> None:
    """Print a batch as one line of JSON."""
    form = batch_form(batch)
    if not with_records:
        typer.echo(json.dumps(form))
        return
    items = list(_records(batch))
    form["records_damage"] = next((item for item in items if isinstance(item, str)), None)
    records = [item for item in items if not isinstance(item, str)]
    content = ", ".join(record_as_json(partition.topic, partition.partition, record) for record in records)
    typer.echo(f'{json.dumps(form)[:-1]}, "content": [{content}]}}')


def batch_form(batch: DumpedBatch) -> dict[str, Any]:
    """Return a batch for JSON; all but the first four fields are null if it is not readable as a batch."""
    header = batch.header
    location = {"file": batch.file, "position": batch.position, "bytes": batch.size, "damage": batch.damage}
    has_producer = header is not None and header.producer_id != NO_PRODUCER_ID
    return location | {
        "base_offset": header.base_offset if header else None,
        "last_offset": header.last_offset if header else None,
        "records": header.count if header else None,
        "base_timestamp": header.base_timestamp if header else None,
        "max_timestamp": header.max_timestamp if header else None,
        "timestamp_type": header.timestamp_type.name.lower() if header else None,
        "codec": _codec(header) if header else None,
        "leader_epoch": header.leader_epoch if header else None,
        "producer_id": header.producer_id if header and has_producer else None,
        "producer_epoch": header.producer_epoch if header and has_producer else None,
        "base_sequence": header.base_sequence if header and has_producer else None,
        "transaction": _transaction(batch),
        "delete_horizon_ms": header.delete_horizon_ms if header else None,
        "crc": header.crc if header else None,
        "crc_ok": batch.damage is None,
    }


@contextmanager
def _contents(path: str) -> Iterator[memoryview]:
    try:
        with closing(OsFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))) as file:
            size = file.size()
            if not size:
                yield memoryview(b"")
                return
            with read_contents(file, size) as data:
                yield data
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror or error}")


def _batch_at(path: str, data: memoryview, position: int) -> DumpedBatch:
    end = len(data)
    try:
        header = check_batch(data, position, end)
    except RecordsError as error:
        if position + HEADER_BYTES <= end:
            header = read_header(data, position)
            if header.magic == MAGIC_V2 and HEADER_BYTES <= header.size <= end - position:
                return DumpedBatch(
                    path, position, header.size, header, str(error), data[position : position + header.size]
                )
        return DumpedBatch(path, position, end - position, None, str(error), data[position:end])
    return DumpedBatch(path, position, header.size, header, None, data[position : position + header.size])


def _codec(header: BatchHeader) -> str:
    number = header.attributes & CODEC_MASK
    return Codec(number).name.lower() if number <= Codec.ZSTD else f"unknown ({number})"


def _transaction(batch: DumpedBatch) -> str | None:
    """Return data for transactional records, commit or abort for a marker, control if the marker is unreadable."""
    header = batch.header
    if header is None or not (header.is_transactional or header.is_control):
        return None
    if not header.is_control:
        return "data"
    try:
        marker = read_marker(batch.data)
    except RecordsError:
        marker = None
    return "control" if marker is None else ("commit" if marker.is_commit else "abort")


def _records(batch: DumpedBatch) -> Iterator[RawRecord | str]:
    """Yield the records; an error message ends them if the rest cannot be read."""
    if batch.header is None:
        return
    try:
        yield from iter_records(batch.data, bytes_max=_DECOMPRESSED_BYTES_MAX)
    except RecordsError as error:
        yield f"its records cannot be read: {error}"


def _shown_record(record: RawRecord) -> str:
    parts = [_shown(record.key), _shown(record.value)]
    parts += [f"{printable(name)}={_shown(value)}" for name, value in record.headers]
    return "  ".join(parts)


def _shown(data: bytes | None) -> str:
    if not data:
        return "null" if data is None else '""'
    text = printable(data.decode("utf-8", "backslashreplace"))
    return text if len(text) <= _VALUE_CHARACTERS_MAX else f"{text[:_VALUE_CHARACTERS_MAX]}… ({len(data):,} bytes)"
