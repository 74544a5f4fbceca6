"""A real disk with unreadable sectors: an ext4 on a loop device whose backing file is cut off behind its back.

Reads of the sectors fail with EIO. They must fail the fetches, lookups, verification and compaction of their partition,
not those of others and not the broker, and they must not keep it from starting.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from logbrook.client import BrokerError, Client
from logbrook.model.identifiers import Offset
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from tests.hostile.victim import MIB, Victim

TOOLS = ("mkfs.ext4", "mount", "umount", "filefrag")
DISK_BYTES = 16 * MIB
VALUE = os.urandom(100_000)
BAD, GOOD = "unreadable", "good"
FIRST_SEGMENT, LAST_SEGMENT = "00000000000000000000.log", "00000000000000000020.log"
TIME_MS = 1_700_000_000_000
BLOCK_BYTES = 4096
READABLE_BYTES = 64 * BLOCK_BYTES
EXTENT = re.compile(r"\s*\d+:")

BadDisk: TypeAlias = Callable[[Path], None]


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture
def bad_disk(tmp_path: Path) -> Iterator[BadDisk]:
    """Returns a function that moves a file to a disk of its own, which can read its first `READABLE_BYTES` only.

    A symbolic link takes its place.
    """
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"NO LOOP DEVICES, SO NOTHING IS PROVEN FOR UNREADABLE SECTORS: root and {', '.join(TOOLS)} needed")
    image, directory = tmp_path / "disk", tmp_path / "mounted"
    directory.mkdir()
    image.touch()
    os.truncate(image, DISK_BYTES)
    run("mkfs.ext4", "-q", "-F", "-b", str(BLOCK_BYTES), "-O", "^has_journal", str(image))
    try:
        run("mount", "-o", "loop", str(image), str(directory))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"NO LOOP DEVICES, SO NOTHING IS PROVEN FOR UNREADABLE SECTORS: {error.stderr}")

    def move(path: Path) -> None:
        moved = directory / path.name
        shutil.copy(path, moved)
        path.unlink()
        path.symlink_to(moved)
        cut_off(image, moved)

    try:
        yield move
    finally:
        # The whole disk again, or the file system could not be written back.
        os.truncate(image, DISK_BYTES)
        run("umount", str(directory))


def cut_off(image: Path, path: Path) -> None:
    """Cut the backing file off behind the first blocks of `path`. The loop device keeps its size.

    A later write behind the cut would make the backing file longer, and the sectors before it readable.
    """
    os.sync()
    printed = run("filefrag", "-v", f"-b{BLOCK_BYTES}", str(path))
    first_block = min(int(line.split()[3].split(".")[0]) for line in printed.splitlines() if EXTENT.match(line))
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    os.truncate(image, first_block * BLOCK_BYTES + READABLE_BYTES)


def batch(number: int) -> bytearray:
    return build_batch([Record(key=b"%d" % (number % 20), value=VALUE, timestamp=TIME_MS + number)])


def fill(client: Client, **settings: str) -> None:
    """Fill two topics with 25 batches each, the first ten in one segment and the next ten in another."""
    for topic in (BAD, GOOD):
        client.create_topic(topic, 1, {"segment.bytes": str(MIB)} | settings)
        for number in range(25):
            client.produce(topic, 0, batch(number))


def assert_unreadable(call: Callable[[], object]) -> None:
    with pytest.raises(BrokerError) as failed:
        call()
    assert failed.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_unreadable_sectors_fail_the_reads_of_their_partition_only(bad_disk: BadDisk, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Victim(str(data)) as victim, Client(victim.address) as client:
        fill(client)
        bad_disk(data / f"{BAD}-0" / FIRST_SEGMENT)
        for _ in range(2):
            assert_unreadable(lambda: client.fetch(BAD, 0, Offset(5)))
            assert_unreadable(lambda: client.list_offset(BAD, 0, TIME_MS + 5))
            assert client.fetch(GOOD, 0, Offset(5)).batches
            assert client.list_offset(GOOD, 0, TIME_MS + 5) == 5
            victim.check()
        # Later segments are readable, and the partition takes more records.
        assert client.list_offset(BAD, 0, TIME_MS + 24) == 24
        assert client.fetch(BAD, 0, Offset(24)).batches
        assert client.produce(BAD, 0, batch(25)) == 25


def test_unreadable_sectors_fail_the_compaction_and_the_verification_of_their_partition_only(
    bad_disk: BadDisk, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with Victim(str(data)) as victim, Client(victim.address) as client:
        fill(client, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
        bad_disk(data / f"{BAD}-0" / FIRST_SEGMENT)
        broker = f"http://{victim.metrics_address}"
        compacted = logbrook("log", "compact", "--broker", broker, "--active", "--yes")
        assert f"reading {BAD}-0/{FIRST_SEGMENT} failed" in compacted.stderr
        # Of the first five keys the older record is gone, in the other partition.
        assert b"".join(client.fetch(GOOD, 0, Offset(0)).batches).count(VALUE) == 20
        verified = logbrook("log", "verify", "--broker", broker, "--json")
        assert verified.returncode == 1
        damage = {result["topic"]: result["damage"] for result in json.loads(verified.stdout)}
        assert "Input/output error" in damage.pop(BAD)["reason"]
        assert set(damage.values()) == {None}
        # The directory is online.
        assert {line["event"] for line in victim.errors} == {"partition maintenance failed"}
        victim.forget_errors()
        victim.check()
        assert client.produce(BAD, 0, batch(25)) == 25


def test_the_write_ahead_log_restores_an_unreadable_tail(bad_disk: BadDisk, tmp_path: Path) -> None:
    data = tmp_path / "data"
    flags = ("--durability", "fsync")
    with Victim(str(data), *flags) as victim, Client(victim.address) as client:
        fill(client)
        victim.kill()
    bad_disk(data / f"{BAD}-0" / LAST_SEGMENT)
    with Victim(str(data), *flags, is_new=False) as victim, Client(victim.address) as client:
        victim.check()
        assert client.fetch(BAD, 0, Offset(24)).batches
        assert client.produce(BAD, 0, batch(25)) == 25


def test_a_broker_starts_with_an_unreadable_tail_and_serves_the_other_partitions(
    bad_disk: BadDisk, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with Victim(str(data)) as victim, Client(victim.address) as client:
        fill(client)
        victim.kill()
    bad_disk(data / f"{BAD}-0" / LAST_SEGMENT)
    with Victim(str(data), is_new=False) as victim, Client(victim.address) as client:
        (line,) = victim.errors
        assert (line["event"], line["partition"]) == ("partition offline", f"{BAD}-0")
        assert LAST_SEGMENT in line["error"]
        victim.forget_errors()
        assert_unreadable(lambda: client.fetch(BAD, 0, Offset(24)))
        assert_unreadable(lambda: client.produce(BAD, 0, batch(25)))
        assert client.fetch(BAD, 0, Offset(5)).batches
        assert client.fetch(GOOD, 0, Offset(24)).batches
        assert client.produce(GOOD, 0, batch(25)) == 25
        victim.check()
    verified = logbrook("log", "verify", "--data", str(data), "--json")
    damage = {result["topic"]: result["damage"] for result in json.loads(verified.stdout)}
    assert LAST_SEGMENT in damage[BAD]["file"]
    logbrook("log", "repair", "--data", str(data), "--yes")
    with Victim(str(data), is_new=False) as victim, Client(victim.address) as client:
        assert victim.errors == []
        assert client.fetch(BAD, 0, Offset(5)).batches
        # The first two batches of the segment can be read. Which records are lost is not known.
        assert client.fetch(BAD, 0, Offset(21)).batches
        assert client.produce(BAD, 0, batch(25)) >= 22


def logbrook(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "logbrook", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
