"""Shards of a coordinator: several partitions of the internal topics, loading, unloading and failures."""

import logging
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import pytest

from logbrook.client.connection import Connection
from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from logbrook.server.coordinators import runtime as runtime_module
from logbrook.server.coordinators.context import ShardState
from logbrook.server.coordinators.internal_topic import java_hash
from logbrook.server.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from logbrook.storage.errors import TooManyOpenFilesError
from logbrook.testing import MemoryFiles
from tests.unit.server.coordinators.test_groups import commit, committed, fetch
from tests.unit.server.coordinators.test_transactions import (
    TransactionalClient,
    is_loaded,
    values,
)
from tests.unit.server.coordinators.test_transactions import committed as stable_offset
from tests.unit.server.shell_kit import Shell

PARTITIONS = 4
SETTINGS = {"groups": {"offsets_partitions": PARTITIONS}, "transactions": {"partitions": PARTITIONS}}
GROUPS = [f"group-{number}" for number in range(12)]


def partition_of(key: str) -> int:
    return (java_hash(key) & 0x7FFF_FFFF) % PARTITIONS


def listed(client: Connection) -> list[str]:
    response = client.request(ListGroupsRequest(), ListGroupsResponse, 4)
    assert response.error_code == ErrorCode.NONE
    return sorted(group.group_id for group in response.groups)


def group_of(partition: int) -> str:
    return next(group for group in GROUPS if partition_of(group) == partition)


def test_groups_are_spread_over_the_partitions_and_listed_together() -> None:
    files = MemoryFiles()
    assert {partition_of(group) for group in GROUPS} == set(range(PARTITIONS))
    with Shell(SETTINGS, files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        for number, group in enumerate(GROUPS):
            assert commit(client, group, number) is ErrorCode.NONE
        assert listed(client) == sorted(GROUPS)
        assert all(shell.log(CONSUMER_OFFSETS, number).log_end_offset for number in range(PARTITIONS))
    with Shell(SETTINGS, files=files) as shell, closing(shell.client()) as client:
        shell.until(lambda: shell.services.groups.runtime.is_ready)
        assert [committed(shell, group) for group in GROUPS] == list(range(len(GROUPS)))
        assert listed(client) == sorted(GROUPS)


@pytest.mark.parametrize("configured", [1, 50])
def test_an_existing_topic_keeps_its_number_of_partitions(configured: int) -> None:
    files = MemoryFiles()
    with Shell(SETTINGS, files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        for number, group in enumerate(GROUPS):
            commit(client, group, number)
        TransactionalClient(client)
    changed = {"groups": {"offsets_partitions": configured}, "transactions": {"partitions": configured}}
    with Shell(changed, files=files) as shell, closing(shell.client()) as client:
        shell.until(lambda: shell.services.groups.runtime.is_ready and is_loaded(shell))
        assert [committed(shell, group) for group in GROUPS] == list(range(len(GROUPS)))
        topics = shell.services.topics.metadata
        assert topics.topic(CONSUMER_OFFSETS).partition_count == PARTITIONS
        assert topics.topic(TRANSACTION_STATE).partition_count == PARTITIONS
        assert TransactionalClient(client).epoch == 1


def test_a_transaction_commits_offsets_of_groups_in_several_shards() -> None:
    files = MemoryFiles()
    with Shell(SETTINGS, files=files) as shell, closing(shell.client()) as client:
        shell.create("t", 2)
        producers = [TransactionalClient(client, f"x{number}") for number in range(6)]
        for number, producer in enumerate(producers):
            assert producer.write(b"%d" % number) is ErrorCode.NONE
        for number, group in enumerate(GROUPS):
            assert producers[0].commit_offset(number, group) is ErrorCode.NONE
            assert stable_offset(client, group) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        with Shell(SETTINGS, files=MemoryFiles(files)) as again, closing(again.client()) as another:
            again.until(lambda: again.services.groups.runtime.is_ready and is_loaded(again))
            assert stable_offset(another, GROUPS[3]) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
            assert TransactionalClient(another, "x0").epoch == 2
            assert [stable_offset(another, group) for group in GROUPS] == [(ErrorCode.NONE, -1)] * len(GROUPS)
        for producer in producers:
            assert producer.end() is ErrorCode.NONE
        assert values(client) == [b"%d" % number for number in range(6)]
    with Shell(SETTINGS, files=files) as shell, closing(shell.client()) as client:
        shell.until(lambda: shell.services.groups.runtime.is_ready and is_loaded(shell))
        for number, group in enumerate(GROUPS):
            assert stable_offset(client, group) == (ErrorCode.NONE, number)
        names = [listing.transactional_id for listing in shell.call(shell.services.transactions.list_transactions)]
        assert sorted(names) == [f"x{number}" for number in range(6)]


def test_an_unloaded_shard_is_coordinated_by_another_broker_until_it_is_loaded() -> None:
    with Shell(SETTINGS) as shell, closing(shell.client()) as client:
        shell.create("t")
        moved, kept = group_of(1), group_of(2)
        for group in (moved, kept):
            assert commit(client, group, 5) is ErrorCode.NONE
        runtime = shell.services.groups.runtime
        shell.call(lambda: runtime.unload(1))
        assert fetch(client, moved) == (ErrorCode.NOT_COORDINATOR, -1)
        assert commit(client, moved, 6) is ErrorCode.NOT_COORDINATOR
        assert fetch(client, kept) == (ErrorCode.NONE, 5)
        assert listed(client) == [kept]
        assert shell.call(lambda: runtime.is_ready), "the shard is not missing, it is elsewhere"
        shell.run(runtime.load(1))
        assert fetch(client, moved) == (ErrorCode.NONE, 5)
        assert commit(client, moved, 6) is ErrorCode.NONE


def test_a_load_that_fails_for_want_of_open_files_is_repeated(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its groups were unavailable until the next start or election."""
    monkeypatch.setattr(runtime_module, "_LOAD_AGAIN_S", 0.01)
    with Shell(SETTINGS) as shell, closing(shell.client()) as client:
        shell.create("t")
        assert commit(client, group_of(1), 5) is ErrorCode.NONE
        runtime = shell.services.groups.runtime
        batches, failures = runtime.topic.batches, [TooManyOpenFilesError("a segment")] * 2

        def fail_at_first(partition: int) -> AsyncIterator[Any]:
            if failures:
                raise failures.pop()
            return batches(partition)

        monkeypatch.setattr(runtime.topic, "batches", fail_at_first)
        shell.call(lambda: runtime.unload(1))
        with caplog.at_level(logging.CRITICAL):
            shell.run(runtime.load(1))
        assert fetch(client, group_of(1)) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        shell.until(lambda: runtime._contexts[1].is_active)
        assert failures == []
        assert fetch(client, group_of(1)) == (ErrorCode.NONE, 5)


def test_a_partition_that_cannot_be_read_makes_its_own_keys_unavailable(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    with Shell(SETTINGS, files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        for group in (group_of(1), group_of(2)):
            commit(client, group, 5)
    directory = TopicPartition(CONSUMER_OFFSETS, 1).directory
    (name,) = [name for name in files.list(directory) if name.endswith(".log")]
    file = files.open(f"{directory}/{name}")
    group_id = group_of(1).encode()
    file.pwrite(b"x", file.pread(file.size(), 0).index(group_id))
    with caplog.at_level(logging.ERROR), Shell(SETTINGS, files=files) as shell, closing(shell.client()) as client:
        runtime = shell.services.groups.runtime
        shell.until(lambda: runtime._contexts[3].is_active and shell.services.transactions.runtime.is_ready)
        assert runtime._contexts[1].state is ShardState.FAILED
        assert fetch(client, group_of(1)) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        assert fetch(client, group_of(2)) == (ErrorCode.NONE, 5)
        response = client.request(ListGroupsRequest(), ListGroupsResponse, 4)
        assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert not runtime.is_ready
        # A transaction with offsets in that partition can end: its marker is in the log for the next load.
        producer = TransactionalClient(client)
        assert producer.commit_offset(6, group_of(1)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert producer.end() is ErrorCode.NONE
        assert shell.log(CONSUMER_OFFSETS, 1).log_end_offset == 2


def test_the_limit_of_groups_holds_over_all_shards() -> None:
    settings = {**SETTINGS, "groups": {"offsets_partitions": PARTITIONS, "groups_max": 3}}
    with Shell(settings) as shell, closing(shell.client()) as client:
        shell.create("t")
        codes = [commit(client, group_of(partition), 1) for partition in range(PARTITIONS)]
        assert codes == [*[ErrorCode.NONE] * 3, ErrorCode.POLICY_VIOLATION]
