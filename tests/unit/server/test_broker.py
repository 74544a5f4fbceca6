"""A whole broker: start, stop, and clean-up."""

import asyncio
import errno
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import uvloop

from logbrook.client import Client
from logbrook.model.identifiers import Offset
from logbrook.ports import OsFiles
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.fetch import FetchResponse
from logbrook.protocol.messages.produce import ProduceResponse
from logbrook.server.advertised import NotAdvertisedError
from logbrook.server.broker import BrokerServer, raise_descriptor_limit
from logbrook.storage.errors import DirectoryLockedError, StorageError
from logbrook.testing import FaultyFiles, MemoryFiles
from tests.unit.server.shell_kit import (
    FETCH_VERSION,
    HeldFiles,
    Shell,
    batch_of,
    broker_config,
    fetch_request,
    is_hung_up_on,
    produce_request,
    request_frame,
)


@pytest.fixture
def free_port() -> Iterator[int]:
    """Yield a port that is in use."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def open_files() -> list[str]:
    """Return the targets of all open file descriptors of this process, sockets included."""
    targets = []
    for name in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return targets


def test_a_stop_releases_all_resources(tmp_path: Path) -> None:
    before = threads()
    with Shell(files=OsFiles(str(tmp_path))) as shell, closing(shell.client()) as client:
        shell.create("t", 3)
        client.request(produce_request("t", batch_of()), ProduceResponse, 12)
        client.request(fetch_request("t"), FetchResponse, FETCH_VERSION)
        shell.run(shell.broker.maintenance.run_once())
        shell.run(shell.broker.maintenance.checkpoint())
        assert {"logbrook-committer", "logbrook-maintenance_0"} <= threads()
        address = shell.address
        loop_tasks = shell.call(asyncio.all_tasks)
        assert loop_tasks
        shell.stop()
        assert shell.call(lambda: len(asyncio.all_tasks())) <= 1
        assert threads() - before <= {"shell"}
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        assert [path for path in open_files() if path.startswith(str(tmp_path))] == []
    assert threads() <= before
    leftovers = [name for _, _, names in os.walk(tmp_path) for name in names if name.endswith(".tmp")]
    assert leftovers == []


def test_a_stop_leaves_nothing_to_recover(tmp_path: Path) -> None:
    with Shell(files=OsFiles(str(tmp_path))) as shell, closing(shell.client()) as client:
        shell.create("t")
        client.request(produce_request("t", batch_of()), ProduceResponse, 12)
    with Shell(files=OsFiles(str(tmp_path))) as again:
        assert not again.broker.directory.members[0].report.changed_anything
        assert again.log("t").high_watermark == 1


def test_it_starts_again_and_again_over_the_same_data_however_it_ended() -> None:
    files = MemoryFiles()
    offsets = 0
    for turn in range(6):
        with Shell(files=files) as shell, Client(f"127.0.0.1:{shell.address[1]}") as client:
            if turn == 0:
                client.create_topic("t")
            for _ in range(3):
                assert client.produce("t", 0, batch_of()) == offsets
                offsets += 1
            assert len(client.fetch("t", 0, Offset(0)).batches) == offsets
            if turn % 2:
                # The state as of a kill at this point.
                files = MemoryFiles(files)


def test_a_stop_ends_long_polls_at_once() -> None:
    with Shell() as shell, shell.connect() as client:
        shell.create("t")
        client.sendall(request_frame(fetch_request("t", wait_ms=600_000, min_bytes=1_000), FETCH_VERSION))
        shell.until(lambda: len(shell.services.fetch_purgatory) == 1)
        started_s = time.monotonic()
        shell.stop()
        assert time.monotonic() - started_s < 5
        assert client.recv(4) != b""
        assert is_hung_up_on(client)


def test_a_stop_ends_long_polls_at_once_that_were_just_woken_for_too_little() -> None:
    with Shell() as shell, shell.connect() as client:
        shell.create("t")
        client.sendall(request_frame(fetch_request("t", wait_ms=600_000, min_bytes=150), FETCH_VERSION))
        shell.until(lambda: len(shell.services.fetch_purgatory) == 1)

        async def wake_and_stop() -> None:
            (wait,) = set().union(*shell.services.fetch_purgatory._delayed.values())
            shell.services.fetch_purgatory.committed(wait.partitions[0], 1_000)
            await shell.broker.stop()

        shell.is_stopped = True
        started_s = time.monotonic()
        shell.run(wake_and_stop())
        assert time.monotonic() - started_s < 5


def test_requests_that_come_while_it_stops_are_not_taken() -> None:
    files = HeldFiles(MemoryFiles())
    with Shell(files=files) as shell, shell.connect() as client:
        shell.create("t")
        files.hold()
        client.sendall(request_frame(produce_request("t", batch_of()), 12, 1))
        shell.until(lambda: shell.log("t").log_end_offset == 1)
        stopping = shell.begin_stop()
        shell.until(lambda: not shell.broker.is_ready)
        client.sendall(request_frame(produce_request("t", batch_of()), 12, 2))
        files.release()
        stopping.result(5)
        assert shell.log("t").log_end_offset == 1


# Failed starts


def failing_start(config: Any, files: Any, error: type[BaseException]) -> BaseException:
    async def start() -> BaseException:
        broker = BrokerServer(config, files=files)
        try:
            with pytest.raises(error) as raised:
                await broker.start()
        finally:
            assert len(asyncio.all_tasks()) == 1
        return raised.value

    return uvloop.run(start())


def test_an_address_in_use_is_reported_and_the_directory_lock_is_released(tmp_path: Path, free_port: int) -> None:
    before = threads()
    config = broker_config({"network": {"listen": f"127.0.0.1:{free_port}"}})
    failed = failing_start(config, OsFiles(str(tmp_path)), OSError)
    assert isinstance(failed, OSError)
    assert failed.errno == errno.EADDRINUSE
    assert threads() <= before
    assert [path for path in open_files() if path.startswith(str(tmp_path))] == []
    with Shell(files=OsFiles(str(tmp_path))) as shell:
        shell.create("t")


def test_a_metrics_address_in_use_releases_the_other_address(tmp_path: Path, free_port: int) -> None:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    network = {"listen": f"127.0.0.1:{port}"}
    config = broker_config({"network": network, "metrics": {"listen": f"127.0.0.1:{free_port}"}})
    failing_start(config, OsFiles(str(tmp_path)), OSError)
    with Shell({"network": network}, files=OsFiles(str(tmp_path))) as shell:
        assert shell.address[1] == port


def test_a_directory_in_use_is_reported_and_not_modified(tmp_path: Path) -> None:
    with Shell(files=OsFiles(str(tmp_path))) as shell, closing(shell.client()) as client:
        shell.create("t")
        failing_start(broker_config(), OsFiles(str(tmp_path)), DirectoryLockedError)
        (answer,) = client.request(produce_request("t", batch_of()), ProduceResponse, 12).responses
        assert answer.partition_responses[0].error_code == ErrorCode.NONE


def test_a_start_that_fails_at_any_call_of_the_disk_releases_everything() -> None:
    memory = MemoryFiles()
    with Shell(files=memory) as shell:
        shell.create("t")
    before = threads()
    counted = FaultyFiles(MemoryFiles(memory))

    async def start_and_stop(files: FaultyFiles) -> None:
        broker = BrokerServer(broker_config(), files=files)
        await broker.start()
        files.fail_at = None
        try:
            await broker.stop()
        except StorageError:
            return

    async def count_calls() -> int:
        broker = BrokerServer(broker_config(), files=counted)
        await broker.start()
        calls = counted.calls
        await broker.stop()
        return calls

    failures = 0
    for number in range(1, uvloop.run(count_calls()) + 1):
        image = MemoryFiles(memory)
        try:
            uvloop.run(start_and_stop(FaultyFiles(image, number)))
        except (StorageError, OSError):
            failures += 1
        assert threads() == before, f"call {number}"
        # The lock is released, and the directory can be opened.
        with Shell(files=image) as again:
            assert again.services.topics.metadata.topic("t").partition_count == 1
    assert failures > 5


# Descriptors


def test_the_descriptor_limit_is_raised_to_the_hard_limit() -> None:
    asked: list[tuple[int, int]] = []
    taken = raise_descriptor_limit(lambda _: (1_024, 4_096), lambda _, limits: asked.append(limits))
    assert (taken, asked) == (4_096, [(4_096, 4_096)])


def test_a_descriptor_limit_that_cannot_be_raised_is_kept() -> None:
    def refuse(_which: int, _limits: tuple[int, int]) -> None:
        raise ValueError("not allowed")

    assert raise_descriptor_limit(lambda _: (1_024, 4_096), refuse) == 1_024
    assert raise_descriptor_limit(lambda _: (4_096, 4_096), refuse) == 4_096


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_the_wildcard_address_is_never_advertised(listen: str) -> None:
    with pytest.raises(NotAdvertisedError, match="--advertise"), Shell({"network": {"listen": listen}}):
        pass
    with Shell({"network": {"listen": listen, "advertise": "example.org:9092"}}) as shell:
        (broker,) = shell.services.view.brokers()
        assert (broker.host, broker.port) == ("example.org", 9092)
