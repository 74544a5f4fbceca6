"""Shards whose load failed by a passing error, and which get transaction markers before they are loaded again."""

import logging
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from typing import Any

import pytest

from logbrook.core.coordinator import CoordinatorNotAvailableError, ProducerIdentity
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.control import build_marker
from logbrook.server.coordinators import runtime as runtime_module
from logbrook.server.coordinators.context import ShardState
from logbrook.server.coordinators.runtime import CoordinatorRuntime
from logbrook.storage.errors import TooManyOpenFilesError
from logbrook.testing import MemoryFiles
from tests.unit.server.coordinators.test_runtime import SETTINGS, group_of
from tests.unit.server.coordinators.test_transactions import TransactionalClient, committed
from tests.unit.server.shell_kit import HeldFiles, Shell

PARTITION = 1


def fail_one_load(monkeypatch: pytest.MonkeyPatch, shell: Shell, runtime: CoordinatorRuntime[Any]) -> None:
    batches, failures = runtime.topic.batches, [TooManyOpenFilesError("a segment")]

    def fail_at_first(partition: int) -> AsyncIterator[Any]:
        if failures:
            raise failures.pop()
        return batches(partition)

    monkeypatch.setattr(runtime.topic, "batches", fail_at_first)
    shell.call(lambda: runtime.unload(PARTITION))
    shell.run(runtime.load(PARTITION))
    assert runtime._contexts[PARTITION].state is ShardState.FAILED


@pytest.mark.parametrize("is_unloaded", [False, True])
def test_a_marker_in_flight_is_committed_before_the_load_is_repeated(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, is_unloaded: bool
) -> None:
    """The load read the committed part of the log, without the marker: the offset stayed unstable."""
    monkeypatch.setattr(runtime_module, "_LOAD_AGAIN_S", 0.05)
    files = HeldFiles(MemoryFiles())
    with Shell(SETTINGS, files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        producer = TransactionalClient(client)
        assert producer.commit_offset(7, group_of(PARTITION)) is ErrorCode.NONE
        runtime = shell.services.groups.runtime
        with caplog.at_level(logging.CRITICAL):
            fail_one_load(monkeypatch, shell, runtime)
        identity = ProducerIdentity(ProducerId(producer.producer_id), ProducerEpoch(producer.epoch))
        marker = build_marker(*identity, is_commit=True, timestamp_ms=1_000, coordinator_epoch=1)
        log = runtime.topic.log(PARTITION)
        files.hold()
        written = shell.call(lambda: runtime.append_marker(PARTITION, marker, identity, is_commit=True))
        shell.until(lambda: runtime._contexts[PARTITION].state is ShardState.LOADING)
        if is_unloaded:
            shell.call(lambda: runtime.unload(PARTITION))
        files.release()

        async def wait() -> None:
            # The coordinator of the transaction repeats the marker if the shard is unloaded.
            with suppress(CoordinatorNotAvailableError):
                await written

        shell.run(wait())
        shell.until(lambda: log.high_watermark == log.log_end_offset)
        if is_unloaded:
            assert runtime._contexts[PARTITION].state is ShardState.UNLOADED
            shell.run(runtime.load(PARTITION))
        shell.until(lambda: runtime._contexts[PARTITION].is_active)
        assert committed(client, group_of(PARTITION)) == (ErrorCode.NONE, 7)
