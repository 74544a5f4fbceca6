"""Fetch and ListOffsets of records that are not in the page cache: they are loaded in a thread, then read."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from logbrook.ports import File, Files, OsFiles
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.fetch import FetchResponse, PartitionData
from logbrook.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from logbrook.protocol.messages.produce import ProduceResponse
from logbrook.records.batch import iter_headers
from logbrook.testing import MemoryFiles
from logbrook.testing.forwarding import ForwardingFile, ForwardingFiles
from tests.unit.server.handler_kit import HandlerClient, HandlerShell
from tests.unit.server.shell_kit import FETCH_VERSION, batch_of, fetch_request, produce_request, until

BATCHES = 5


class ColdFiles(ForwardingFiles):
    """Files with a page cache: bytes are in it once they were read by a read that may wait for the disk."""

    def __init__(self, inner: Files) -> None:
        super().__init__(inner)
        self.cached: set[tuple[str, int]] = set()
        self.keeps = True
        # Path, and the bytes of it that are unreadable.
        self.unreadable = ""
        self.unreadable_bytes = range(1 << 30)
        # Paths of reads on the event loop that may wait for the disk.
        self.waits: list[str] = []

    def _wrap(self, file: File) -> File:
        return ColdFile(file, self)


class ColdFile(ForwardingFile):
    def __init__(self, inner: File, files: ColdFiles) -> None:
        super().__init__(inner)
        self._files = files

    def pread_cached_into(self, buffer: memoryview, position: int) -> int:
        wanted = {(self.path, at) for at in range(position, position + len(buffer))}
        return self.inner.pread_into(buffer, position) if wanted <= self._files.cached else 0

    def pread_into(self, buffer: memoryview, position: int) -> int:
        if threading.current_thread() is threading.main_thread():
            self._files.waits.append(self.path)
        return self._cache(self.inner.pread_into(buffer, position), position)

    def load(self, position: int, length: int) -> int:
        return self._cache(self.inner.load(position, length), position)

    def _cache(self, filled: int, position: int) -> int:
        bad = self._files.unreadable_bytes
        if self.path == self._files.unreadable and position < bad.stop and position + filled > bad.start:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        if self._files.keeps:
            self._files.cached |= {(self.path, at) for at in range(position, position + filled)}
        return filled


@pytest.fixture
def files() -> ColdFiles:
    return ColdFiles(MemoryFiles())


@pytest.fixture
def shell(files: ColdFiles) -> Iterator[HandlerShell]:
    """A broker with a topic of two partitions, each with a closed segment of five batches."""
    with HandlerShell(files=files) as shell:
        shell.create("t", 2)
        with closing(shell.client()) as producer:
            for partition in (0, 1):
                for _ in range(BATCHES):
                    producer.request(produce_request("t", batch_of(), partition=partition), ProduceResponse, 12)
                shell.call(lambda partition=partition: shell.log("t", partition).roll())  # type: ignore[misc]
        files.cached.clear()
        yield shell


@pytest.fixture
def client(shell: HandlerShell) -> Iterator[HandlerClient]:
    with closing(shell.client()) as client:
        yield client


def fetch(client: HandlerClient, *partitions: int) -> list[PartitionData]:
    response = client.request(fetch_request("t", partitions=partitions or (0,)), FetchResponse, FETCH_VERSION)
    return [partition for topic in response.responses for partition in topic.partitions]


def count_batches(data: PartitionData) -> int:
    return len(list(iter_headers(data.records or b"")))  # type: ignore[arg-type]


def list_offset(client: HandlerClient, timestamp: int) -> tuple[int, int]:
    topic = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
    response = client.request(ListOffsetsRequest(replica_id=-1, topics=[topic]), ListOffsetsResponse, 6)
    (partition,) = response.topics[0].partitions
    return partition.error_code, partition.offset


def test_a_fetch_reads_uncached_records_from_disk(client: HandlerClient, files: ColdFiles) -> None:
    files.waits.clear()
    (data,) = fetch(client)
    assert (data.error_code, count_batches(data)) == (ErrorCode.NONE, BATCHES)
    assert files.waits == []


def test_a_fetch_with_records_does_not_wait_for_other_partitions_and_has_them_loaded(
    client: HandlerClient, files: ColdFiles
) -> None:
    files.waits.clear()
    first, second = fetch(client, 0, 1)
    assert (first.error_code, count_batches(first)) == (ErrorCode.NONE, BATCHES)
    assert (second.error_code, count_batches(second), second.high_watermark) == (ErrorCode.NONE, 0, BATCHES)
    until(lambda: [count_batches(data) for data in fetch(client, 0, 1)] == [BATCHES, BATCHES])
    assert files.waits == []


def test_a_fetch_that_finds_its_records_evicted_each_time_waits_for_the_disk(
    client: HandlerClient, files: ColdFiles
) -> None:
    files.keeps = False
    (data,) = fetch(client)
    assert (data.error_code, count_batches(data)) == (ErrorCode.NONE, BATCHES)


def test_an_unreadable_partition_fails_also_if_others_have_records(client: HandlerClient, files: ColdFiles) -> None:
    files.unreadable = "t-1/00000000000000000000.log"
    codes = [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
    for _ in range(2):
        until(lambda: [data.error_code for data in fetch(client, 0, 1)] == codes)
    files.unreadable = ""
    until(lambda: [count_batches(data) for data in fetch(client, 0, 1)] == [BATCHES, BATCHES])


def test_an_unreadable_segment_fails_its_partition_only_and_only_while_it_is_unreadable(
    client: HandlerClient, files: ColdFiles
) -> None:
    files.unreadable = "t-0/00000000000000000000.log"
    files.waits.clear()
    unreadable, readable = fetch(client, 0, 1)
    assert (unreadable.error_code, count_batches(unreadable)) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
    assert (readable.error_code, count_batches(readable)) == (ErrorCode.NONE, BATCHES)
    assert list_offset(client, 0)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert files.waits == [], "a failing read may take the disk seconds"
    files.unreadable = ""
    assert count_batches(fetch(client)[0]) == BATCHES
    assert list_offset(client, 0) == (ErrorCode.NONE, 0)


def test_records_before_unreadable_ones_are_returned(
    shell: HandlerShell, client: HandlerClient, files: ColdFiles
) -> None:
    shell.create("u")
    for _ in range(BATCHES):
        client.request(produce_request("u", batch_of(5_000)), ProduceResponse, 12)
    shell.call(shell.log("u").roll)
    files.cached.clear()
    size = len(batch_of(5_000))
    files.unreadable, files.unreadable_bytes = "u-0/00000000000000000000.log", range(2 * size, 3 * size)
    answers = []
    for offset in range(4):
        response = client.request(fetch_request("u", offset), FetchResponse, FETCH_VERSION)
        (data,) = response.responses[0].partitions
        answers.append((data.error_code, count_batches(data)))
    assert answers == [
        (ErrorCode.NONE, 1),
        (ErrorCode.NONE, 1),
        (ErrorCode.KAFKA_STORAGE_ERROR, 0),
        (ErrorCode.NONE, BATCHES - 3),
    ]


def test_an_unreadable_index_is_rebuilt_from_the_log(client: HandlerClient, files: ColdFiles) -> None:
    files.unreadable = "t-0/00000000000000000000.index"
    (data,) = fetch(client)
    assert (data.error_code, count_batches(data)) == (ErrorCode.NONE, BATCHES)


def test_a_time_lookup_reads_uncached_records_from_disk(shell: HandlerShell, files: ColdFiles) -> None:
    with closing(shell.client()) as producer:
        for _ in range(BATCHES):
            producer.request(produce_request("t", batch_of()), ProduceResponse, 12)
            shell.call(shell.log("t").roll)
    shell.stop()
    # The largest timestamps of closed segments are not known after a start.
    with HandlerShell(files=files) as again, closing(again.client()) as client:
        files.cached.clear()
        files.waits.clear()
        assert list_offset(client, 2**60) == (ErrorCode.NONE, -1)
        assert list_offset(client, 0) == (ErrorCode.NONE, 0)
        assert files.waits == []


def test_an_index_is_rebuilt_from_a_segment_that_is_not_cached(shell: HandlerShell, files: ColdFiles) -> None:
    shell.stop()
    files.unlink("t-0/00000000000000000000.index")
    with HandlerShell(files=files) as again, closing(again.client()) as client:
        files.cached.clear()
        files.waits.clear()
        (data,) = fetch(client)
        assert (data.error_code, count_batches(data)) == (ErrorCode.NONE, BATCHES)
        assert files.waits == []


def test_maintenance_does_not_wait_for_the_disk_on_the_event_loop(shell: HandlerShell, files: ColdFiles) -> None:
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    shell.create("c", 1, settings)
    with closing(shell.client()) as producer:
        for _ in range(BATCHES):
            producer.request(produce_request("c", batch_of()), ProduceResponse, 12)
    shell.call(shell.log("c").roll)
    shell.stop()
    with HandlerShell(files=files) as again:
        files.cached.clear()
        files.waits.clear()
        result = again.run(again.broker.maintenance.run_once())
        # The records of the other topic have an old timestamp.
        assert (result.logs_compacted, result.segments_removed, result.errors) == (1, 2, [])
        files.cached.clear()
        verified = again.run(again.broker.maintenance.verify(again.log("c"), lambda _totals: True))
        assert verified is not None
        assert (verified.damage, verified.segments) == (None, 2)
        assert files.waits == []


def test_a_client_that_disconnects_while_its_records_are_loaded_is_removed(
    shell: HandlerShell, files: ColdFiles
) -> None:
    leaving = shell.client()
    leaving.send(fetch_request("t"), FetchResponse, FETCH_VERSION)
    leaving.close()
    with closing(shell.client()) as client:
        (data,) = fetch(client)
    assert count_batches(data) == BATCHES


def test_a_segment_that_is_truncated_while_the_broker_runs_fails_the_fetch_not_the_broker(tmp_path: Path) -> None:
    """With a memory mapping this would be a SIGBUS."""
    with HandlerShell(files=OsFiles(str(tmp_path))) as shell, closing(shell.client()) as client:
        shell.create("t", 2)
        for partition in (0, 1):
            client.request(produce_request("t", batch_of(50_000), partition=partition), ProduceResponse, 12)
            shell.call(lambda partition=partition: shell.log("t", partition).roll())  # type: ignore[misc]
        assert [count_batches(data) for data in fetch(client, 0, 1)] == [1, 1]
        os.truncate(tmp_path / "t-0" / "00000000000000000000.log", 4096)
        truncated, readable = fetch(client, 0, 1)
        assert truncated.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert count_batches(readable) == 1
