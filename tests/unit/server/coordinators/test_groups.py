"""The group coordinator in a broker: replies wait for commits, failures, and loading."""

import errno
import logging
from contextlib import closing
from typing import Any, cast

import pytest

from logbrook.client.connection import Connection, InFlightRequest
from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from logbrook.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from logbrook.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from logbrook.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from logbrook.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from logbrook.server.api import RequestContext
from logbrook.server.coordinators.internal_topic import java_hash
from logbrook.server.handlers import offset_fetch
from logbrook.server.topics import CONSUMER_OFFSETS
from logbrook.testing import FaultyFiles, MemoryFiles, RecordingFiles
from logbrook.testing.crash_states import crash_states
from tests.unit.server.coordinators.kit import pending_replies
from tests.unit.server.shell_kit import HeldFiles, Shell, until

NAMES_VERSION = 9
OFFSETS = TopicPartition(CONSUMER_OFFSETS, 0)


def send_commit(
    client: Connection, group: str, offset: int, partition: int = 0
) -> "InFlightRequest[OffsetCommitResponse]":
    committed = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=[committed])])
    return client.send(request, OffsetCommitResponse, NAMES_VERSION)


def code_of(response: OffsetCommitResponse) -> ErrorCode:
    return ErrorCode(response.topics[0].partitions[0].error_code)


def commit(client: Connection, group: str, offset: int, partition: int = 0) -> ErrorCode:
    return code_of(client.receive(send_commit(client, group, offset, partition)))


def send_fetch(client: Connection, group: str, partition: int = 0) -> "InFlightRequest[OffsetFetchResponse]":
    wanted = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[partition])]
    )
    return client.send(OffsetFetchRequest(groups=[wanted]), OffsetFetchResponse, NAMES_VERSION)


def fetch(client: Connection, group: str, partition: int = 0) -> tuple[ErrorCode, int]:
    (answer,) = client.receive(send_fetch(client, group, partition)).groups
    if answer.error_code:
        return ErrorCode(answer.error_code), -1
    return ErrorCode.NONE, answer.topics[0].partitions[0].committed_offset


def committed(shell: Shell, group: str, partition: int = 0) -> int:
    with closing(shell.client()) as client:
        code, offset = fetch(client, group, partition)
    assert code is ErrorCode.NONE
    return offset


def has_waiting_replies(shell: Shell, count: int) -> bool:
    """Return True if so many replies wait for the last append. For the event loop."""
    (context,) = shell.services.groups.runtime._contexts
    return bool(context.in_flight) and len(context.in_flight[-1].replies) == count


def join(client: Connection, group: str = "g") -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    return client.request(request, JoinGroupResponse, 3)


def sync(client: Connection, joined: JoinGroupResponse, group: str = "g") -> "InFlightRequest[SyncGroupResponse]":
    request = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")],
    )
    return client.send(request, SyncGroupResponse, 2)


def test_the_topic_of_the_offsets_is_made_once_by_many_first_commits_at_once() -> None:
    with Shell({"groups": {"offsets_partitions": 20}}) as shell:
        shell.create("t")
        clients = [shell.client() for _ in range(10)]
        sent = [(client, send_commit(client, f"g{number}", number)) for number, client in enumerate(clients)]
        assert {code_of(client.receive(ticket)) for client, ticket in sent} == {ErrorCode.NONE}
        for client in clients:
            client.close()
        assert [committed(shell, f"g{number}") for number in range(10)] == list(range(10))
        topic = shell.services.topics.metadata.topic(CONSUMER_OFFSETS)
        assert topic.partition_count == 20
        written = [number for number in range(20) if shell.log(CONSUMER_OFFSETS, number).log_end_offset]
        assert written == sorted({(java_hash(f"g{number}") & 0x7FFF_FFFF) % 20 for number in range(10)})


@pytest.mark.parametrize(
    ("text", "value"), [("", 0), ("a", 97), ("hello", 99_162_322), ("polygenelubricants", 2**31), ("𐐷", 1_770_582)]
)
def test_groups_are_spread_as_java_would(text: str, value: int) -> None:
    """Characters outside the first plane are two UTF-16 units, and the sign bit of Java's hash is cleared."""
    assert java_hash(text) == value


def test_a_commit_is_acknowledged_and_visible_once_it_is_durable() -> None:
    files = HeldFiles(MemoryFiles())
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        assert commit(client, "g", 1) is ErrorCode.NONE
        files.hold()
        sent = send_commit(client, "g", 2)
        until(lambda: files.waiting)
        with closing(shell.client()) as second:
            fetched = send_fetch(second, "g")
            shell.until(lambda: has_waiting_replies(shell, 2))
            files.release()
            assert code_of(client.receive(sent)) is ErrorCode.NONE
            assert second.receive(fetched).groups[0].topics[0].partitions[0].committed_offset == 2


def test_a_fetch_sees_every_commit_that_was_sent_before_it() -> None:
    files = HeldFiles(MemoryFiles())
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        assert commit(client, "g", 1) is ErrorCode.NONE
        files.hold()
        commits = [send_commit(client, "g", offset) for offset in (2, 3)]
        fetched = send_fetch(client, "g")
        ticket_of_other = send_fetch(client, "other")
        until(lambda: files.waiting)
        files.release()
        assert [code_of(client.receive(ticket)) for ticket in commits] == [ErrorCode.NONE] * 2
        assert client.receive(fetched).groups[0].topics[0].partitions[0].committed_offset == 3
        assert client.receive(ticket_of_other).groups[0].topics[0].partitions[0].committed_offset == -1


def test_a_fetch_does_not_show_a_commit_whose_sync_failed() -> None:
    memory = MemoryFiles()
    files = FaultyFiles(memory, only={"fsync"}, matching=lambda path: path.startswith("wal/"), sticky=True)
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        assert commit(client, "g", 1) is ErrorCode.NONE
        files.fail_at = files.calls + 1
        sent, fetched = send_commit(client, "g", 2), send_fetch(client, "g")
        assert code_of(client.receive(sent)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        (answer,) = client.receive(fetched).groups
        if answer.error_code == ErrorCode.NONE:
            assert answer.topics[0].partitions[0].committed_offset == 1
        else:
            assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        shell.until(lambda: shell.services.groups.runtime.is_ready)
        assert committed(shell, "g") == 1


def test_a_fetch_waits_for_the_commits_of_the_shard_it_read_from() -> None:
    """Its response is computed when the request is handled, and may run on later, when the shard has been unloaded."""
    files = HeldFiles(MemoryFiles())
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        assert commit(client, "g", 1) is ErrorCode.NONE
        files.hold()
        send_commit(client, "g", 2)
        until(lambda: files.waiting)

        async def fetch_and_unload() -> OffsetFetchResponse:
            topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
            response: Any = offset_fetch.handle(shell.services, request, RequestContext(NAMES_VERSION, ""))
            shell.services.groups.runtime.unload(0)
            return cast(OffsetFetchResponse, await response)

        (group,) = shell.run(fetch_and_unload()).groups
        files.release()
        assert (group.error_code, list(group.topics)) == (ErrorCode.NOT_COORDINATOR, [])


def test_an_assignment_is_answered_once_it_is_durable() -> None:
    files = HeldFiles(MemoryFiles())
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        commit(client, "other", 1)
        joined = join(client)
        files.hold()
        sent = sync(client, joined)
        until(lambda: files.waiting)
        # Both the client's turn and the group's member wait.
        assert [turn.is_done for turn in shell.call(lambda: list(shell.connections_now()[0]._pending))] == [False]
        files.release()
        response = client.receive(sent)
        assert (response.error_code, response.assignment) == (ErrorCode.NONE, b"mine")


@pytest.mark.slow
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.long), 3])
def test_committed_offsets_survive_a_crash(step: int) -> None:
    """The crash happens after every `step`-th operation on the disk."""
    files = RecordingFiles()
    with Shell({"storage": {"wal_file_bytes": 4096}}, files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        for offset in range(4):
            assert commit(client, "g", offset) is ErrorCode.NONE
            files.mark(offset)
        journal = files.journal
    for state in crash_states(journal, prefixes=range(0, len(journal.ops) + 1, step)):
        with Shell({"storage": {"wal_file_bytes": 4096}}, files=state.files) as again:
            again.until(lambda again=again: again.services.groups.runtime.is_ready)  # type: ignore[misc]
            assert committed(again, "g") >= max(map(int, map(str, state.marks)), default=-1), str(state)


def test_a_coordinator_refuses_requests_while_it_is_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        commit(client, "g", 7)

    async def never(_groups: object) -> None:
        return

    with monkeypatch.context() as patch:
        patch.setattr("logbrook.server.coordinators.runtime.CoordinatorRuntime.load_all", never)
        with Shell(files=MemoryFiles(files)) as shell, closing(shell.client()) as client:
            assert fetch(client, "g") == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
            assert commit(client, "g", 8) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert join(client).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with Shell(files=files) as shell:
        shell.until(lambda: shell.services.groups.runtime.is_ready)
        assert committed(shell, "g") == 7


def spoil(files: MemoryFiles, original: bytes, written: bytes) -> None:
    """Change some bytes of the offsets, as a failing disk does."""
    directory = OFFSETS.directory
    for name in files.list(directory):
        if name.endswith(".log"):
            file = files.open(f"{directory}/{name}")
            content = file.pread(file.size(), 0)
            file.pwrite(written, content.index(original))


def test_offsets_that_cannot_be_read_are_not_no_offsets(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        commit(client, "group-of-seven", 7)
    # The checksum no longer matches; without it the bytes would be accepted.
    spoil(files, b"group-of-seven", b"group-of-eight")
    with caplog.at_level(logging.ERROR), Shell(files=files) as shell, closing(shell.client()) as client:
        until(lambda: "coordinator load failed" in caplog.text)
        for group in ("group-of-seven", "group-of-eight"):
            assert fetch(client, group) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        # The rest of the broker is not affected.
        shell.create("u")


def test_offsets_in_memory_are_lost_in_a_restart_and_leave_no_topic() -> None:
    files = MemoryFiles()
    settings = {"groups": {"offsets": "memory"}}
    with Shell(settings, files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        assert commit(client, "g", 7) is ErrorCode.NONE
        assert committed(shell, "g") == 7
        joined = join(client, "h")
        assert client.receive(sync(client, joined, "h")).assignment == b"mine"
        assert CONSUMER_OFFSETS not in shell.services.topics.metadata.topics
    with Shell(settings, files=files) as shell:
        shell.until(lambda: shell.services.groups.runtime.is_ready)
        assert committed(shell, "g") == -1


def test_a_disk_failure_is_reported_and_no_unwritten_change_is_visible() -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync"}, matching=lambda path: path.startswith("wal/"))
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        assert commit(client, "g", 1) is ErrorCode.NONE
        files.fail_at = files.calls + 1
        for offset in (2, 3):
            shell.until(lambda: shell.services.groups.runtime.is_ready)
            assert commit(client, "g", offset) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert committed(shell, "g") == 1


def test_a_failed_topic_creation_fails_all_waiting_requests_and_is_retried() -> None:
    files = FaultyFiles(
        MemoryFiles(),
        error=errno.ENOSPC,
        only={"pwrite"},
        matching=lambda path: path.startswith("__cluster_metadata-0/") and path.endswith(".log"),
    )
    with Shell(files=files) as shell:
        shell.create("t")
        clients = [shell.client() for _ in range(3)]
        # No disk space for the record that creates the topic.
        files.fail_at, files.sticky = files.calls + 1, True
        sent = [(client, send_commit(client, "g", 1)) for client in clients]
        codes = {code_of(client.receive(ticket)) for client, ticket in sent}
        # The shard is loaded again after the first failure.
        assert codes <= {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        shell.until(lambda: shell.services.groups.runtime.is_ready)
        assert committed(shell, "g") == -1
        files.fail_at = None
        assert commit(clients[0], "g", 2) is ErrorCode.NONE
        for client in clients:
            client.close()


def test_a_stop_answers_members_that_wait_in_a_rebalance() -> None:
    with Shell({"groups": {"initial_rebalance_delay_ms": 600_000}}) as shell, closing(shell.client()) as client:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=600_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        sent = client.send(request, JoinGroupResponse, 3)
        shell.until(lambda: pending_replies(shell.services))
        shell.stop()
        assert client.receive(sent).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_committed_offsets_of_a_deleted_topic_are_deleted_permanently() -> None:
    files = MemoryFiles()
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        commit(client, "g", 7)
        states = [DeleteTopicState(name="t")]
        client.request(DeleteTopicsRequest(topics=states), DeleteTopicsResponse)
        shell.create("t")
        assert committed(shell, "g") == -1
        shell.until(lambda: shell.log(CONSUMER_OFFSETS).high_watermark == 2)
    with Shell(files=files) as shell:
        shell.until(lambda: shell.services.groups.runtime.is_ready)
        assert committed(shell, "g") == -1
