"""DescribeLogDirs."""

import os
from contextlib import closing
from pathlib import Path

from logbrook.ports import OsFiles
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from logbrook.protocol.messages.produce import ProduceResponse
from logbrook.storage.errors import StorageOfflineError
from logbrook.testing import MemoryFiles
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.kit import Peer, distinct_versions
from tests.unit.server.shell_kit import batch_of, produce_request


def describe(
    peer: Peer, *topics: tuple[str, list[int]], everything: bool = False, version: int | None = None
) -> DescribeLogDirsResult:
    wanted = None if everything else [DescribableLogDirTopic(topic=name, partitions=ids) for name, ids in topics]
    response = peer.ask(DescribeLogDirsRequest(topics=wanted), DescribeLogDirsResponse, version)
    assert response.error_code == ErrorCode.NONE
    (result,) = response.results
    return result


def sizes(result: DescribeLogDirsResult) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }


@distinct_versions(DescribeLogDirsRequest)
def test_a_partition_is_as_large_as_its_records(broker: HandlerShell, peer: Peer, version: int) -> None:
    name = peer.create(partitions=2)
    empty = describe(peer, (name, [0, 1]), version=version)
    assert (empty.error_code, empty.log_dir, sizes(empty)) == (
        ErrorCode.NONE,
        str(Path(broker.config.data).absolute()),
        {(name, 0): 0, (name, 1): 0},
    )
    peer.produce(name, bytes(1_000), partition=1)
    full = sizes(describe(peer, (name, [0, 1]), version=version))
    assert full[name, 0] == 0
    assert 1_000 < full[name, 1] < 1_200


@distinct_versions(DescribeLogDirsRequest)
def test_null_topics_return_all_log_directories_entries(peer: Peer, version: int) -> None:
    name = peer.create(partitions=2)
    sizes_by_partition = sizes(describe(peer, everything=True, version=version))
    assert {(name, 0), (name, 1)} <= set(sizes_by_partition)
    assert not any(topic == "__cluster_metadata" for topic, _ in sizes_by_partition)


@distinct_versions(DescribeLogDirsRequest)
def test_unknown_partitions_are_left_out(peer: Peer, version: int) -> None:
    name = peer.create()
    result = describe(peer, (name, [0, 1, -1, 0]), ("nobody", [0]), version=version)
    assert sizes(result) == {(name, 0): 0}
    assert describe(peer, version=version).topics == []


@distinct_versions(DescribeLogDirsRequest)
def test_offset_lag_is_0_and_there_is_no_future_replica(peer: Peer, version: int) -> None:
    (topic,) = describe(peer, (peer.create(), [0]), version=version).topics
    (partition,) = topic.partitions
    assert (partition.offset_lag, partition.is_future_key) == (0, False)


@distinct_versions(DescribeLogDirsRequest)
def test_the_disk_size_is_reported_from_version_4_on(tmp_path: Path, version: int) -> None:
    with HandlerShell(files=OsFiles(str(tmp_path))) as broker, Peer(broker) as peer:
        result = describe(peer, version=version)
    if version < 4:
        assert (result.total_bytes, result.usable_bytes) == (-1, -1)
        return
    disk = os.statvfs(tmp_path)
    assert result.total_bytes == disk.f_blocks * disk.f_frsize
    assert 0 < result.usable_bytes < result.total_bytes


def test_a_disk_that_fills_has_less_to_use() -> None:
    files = MemoryFiles(capacity_bytes=1 << 30)
    with HandlerShell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")

        def space() -> tuple[int, int]:
            (result,) = client.request(DescribeLogDirsRequest(), DescribeLogDirsResponse).results
            return result.total_bytes, result.usable_bytes

        before = space()
        client.request(produce_request("t", batch_of(100_000)), ProduceResponse, 12)
        after = space()
    assert before[0] == after[0] == 1 << 30
    assert before[1] - after[1] >= 100_000


def test_a_failed_disk_is_reported() -> None:
    with HandlerShell() as shell, closing(shell.client()) as client:
        failure = StorageOfflineError("sync", "wal/1", OSError("the disk is on fire"))
        shell.call(lambda: shell.broker.directory.environment.health.fail(failure))
        (result,) = client.request(DescribeLogDirsRequest(), DescribeLogDirsResponse).results
    assert (result.error_code, result.total_bytes) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
