"""What is in the files of a log, batch by batch, good or bad: `logbrook log dump`.

Nothing is recovered and nothing is believed. A batch whose checksum does not hold is shown with what its header says,
as long as that makes sense; where it does not, the rest of the file is one stretch of bytes that nobody can read.
"""

import json
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import typer

from logbrook.cli.failures import fail
from logbrook.cli.moments import iso_time
from logbrook.cli.record_forms import record_as_json
from logbrook.config.printable import printable
from logbrook.model import TopicPartition
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


class Found(NamedTuple):
    """A batch in a file, or with no header a stretch of bytes that is none. `damage` says what is wrong."""

    file: str
    position: int
    size: int
    header: BatchHeader | None
    damage: str | None
    data: memoryview


def partition_files(root: str, partition: TopicPartition, from_offset: int) -> list[str]:
    """The segments of a partition that may hold `from_offset` or later ones, in order."""
    directory = os.path.join(root, partition.directory)
    names = sorted(name for name in os.listdir(directory) if parse_log(name) is not None)
    passed = {name for name, following in pairwise(names) if (parse_log(following) or 0) <= from_offset}
    return [os.path.join(directory, name) for name in names if name not in passed]


def partition_of(path: str) -> TopicPartition:
    """Where a segment file belongs, as far as the name of its directory tells."""
    name = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return TopicPartition.from_directory(name) or TopicPartition(name, -1)


def dump_file(path: str, from_offset: int) -> Iterator[Found]:
    """Every batch that holds `from_offset` or a later one. Ends the command if the file cannot be read.

    What is found is good until the next one is asked for.
    """
    with _mapped(path) as data:
        position = 0
        while position < len(data):
            found = _found(path, data, position)
            position += found.size
            try:
                if found.header is None or found.header.last_offset >= from_offset:
                    yield found
            finally:
                # The file cannot be unmapped while somebody looks at it.
                found.data.release()


def print_batches_header() -> None:
    typer.secho("  ".join(name.upper().ljust(width) for name, width in _COLUMNS).rstrip(), bold=True)


def print_batch(found: Found, with_records: bool) -> None:
    """A line of the table, what is wrong, and the records below it."""
    if found.header is None:
        typer.secho(f"{found.file}, byte {found.position}: {found.size:,} bytes are no batch: {found.damage}", fg="red")
        return
    form = batch_form(found)
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
    if found.damage:
        typer.secho(f"    {found.file}, byte {found.position}: {found.damage}", fg="red")
    if with_records:
        for record in _records(found):
            if isinstance(record, str):
                typer.secho(f"    {record}", fg="red")
            else:
                typer.echo(f"    {record.offset}  {iso_time(record.timestamp)}  {_shown_record(record)}")


def print_batch_json(partition: TopicPartition, found: Found, with_records: bool) -> None:
    """One line."""
    form = batch_form(found)
    if not with_records:
        typer.echo(json.dumps(form))
        return
    records = list(_records(found))
    problem = next((one for one in records if isinstance(one, str)), None)
    form["records_damage"] = problem
    good = [one for one in records if not isinstance(one, str)]
    lines = ", ".join(record_as_json(partition.topic, partition.partition, one) for one in good)
    typer.echo(f'{json.dumps(form)[:-1]}, "content": [{lines}]}}')


def batch_form(found: Found) -> dict[str, Any]:
    """What is known of a batch; all but the first four are null for bytes that are none."""
    header = found.header
    place = {"file": found.file, "position": found.position, "bytes": found.size, "damage": found.damage}
    has_producer = header is not None and header.producer_id != NO_PRODUCER_ID
    return place | {
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
        "transaction": _transaction(found),
        "delete_horizon_ms": header.delete_horizon_ms if header else None,
        "crc": header.crc if header else None,
        "crc_ok": found.damage is None,
    }


@contextmanager
def _mapped(path: str) -> Iterator[memoryview]:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                yield memoryview(b"")
                return
            with mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as data:
                yield data
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror or error}")


def _found(path: str, data: memoryview, position: int) -> Found:
    end = len(data)
    try:
        header = check_batch(data, position, end)
    except RecordsError as error:
        if position + HEADER_BYTES <= end:
            claimed = read_header(data, position)
            if claimed.magic == MAGIC_V2 and HEADER_BYTES <= claimed.size <= end - position:
                return Found(
                    path, position, claimed.size, claimed, str(error), data[position : position + claimed.size]
                )
        return Found(path, position, end - position, None, str(error), data[position:end])
    return Found(path, position, header.size, header, None, data[position : position + header.size])


def _codec(header: BatchHeader) -> str:
    number = header.attributes & CODEC_MASK
    return Codec(number).name.lower() if number <= Codec.ZSTD else f"unknown ({number})"


def _transaction(found: Found) -> str | None:
    """What a batch is to a transaction: its data, or the marker that ends it."""
    header = found.header
    if header is None or not (header.is_transactional or header.is_control):
        return None
    if not header.is_control:
        return "data"
    try:
        marker = read_marker(found.data)
    except RecordsError:
        marker = None
    return "control" if marker is None else ("commit" if marker.is_commit else "abort")


def _records(found: Found) -> Iterator[RawRecord | str]:
    """The records, and a sentence where there are no more because they cannot be read."""
    if found.header is None:
        return
    try:
        yield from iter_records(found.data, bytes_max=_DECOMPRESSED_BYTES_MAX)
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
