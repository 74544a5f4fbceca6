"""The transaction coordinator in a broker: replies wait for commits, failures, and recovery."""

import errno
from collections.abc import Callable
from contextlib import closing

import pytest

from logbrook.client.connection import Connection, InFlightRequest
from logbrook.core.transactions.transaction import TransactionState
from logbrook.model import TopicPartition
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from logbrook.protocol.messages.fetch import FetchResponse
from logbrook.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from logbrook.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from logbrook.protocol.messages.produce import ProduceResponse
from logbrook.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from logbrook.records.batch import iter_headers
from logbrook.records.builder import build_batch
from logbrook.records.reader import iter_records
from logbrook.records.record import Record
from logbrook.server.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from logbrook.testing import FaultyFiles, MemoryFiles, RecordingFiles
from logbrook.testing.clock import FakeClock
from logbrook.testing.crash_states import crash_states
from tests.unit.server.shell_kit import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    HeldFiles,
    Shell,
    fetch_request,
    produce_request,
    until,
)

READ_COMMITTED = 1
PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))


class TransactionalClient:
    """A producer of the second version of the protocol, request by request."""

    def __init__(self, client: Connection, name: str = "x", timeout_ms: int = 60_000) -> None:
        self.client = client
        self.name = name
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        answer = client.request(request, InitProducerIdResponse, 5)
        assert answer.error_code == ErrorCode.NONE
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences: dict[int, int] = {}

    def write(self, value: bytes, partition: int = 0) -> ErrorCode:
        sequence = self.sequences.get(partition, 0)
        batch = build_batch(
            [Record(value=value, timestamp=1_000)],
            producer_id=ProducerId(self.producer_id),
            producer_epoch=ProducerEpoch(self.epoch),
            base_sequence=sequence,
            transactional=True,
        )
        request = produce_request("t", batch, partition=partition)
        request.transactional_id = self.name
        answer = self.client.request(request, ProduceResponse, PRODUCE_VERSION)
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if code is ErrorCode.NONE:
            self.sequences[partition] = sequence + 1
        return code

    def commit_offset(self, offset: int, group: str = "g") -> ErrorCode:
        committed = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[committed])],
        )
        answer = self.client.request(request, TxnOffsetCommitResponse, 5)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def send_end(self, *, is_commit: bool = True) -> "InFlightRequest[EndTxnResponse]":
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, committed=is_commit
        )
        return self.client.send(request, EndTxnResponse, 5)

    def receive_end(self, sent: "InFlightRequest[EndTxnResponse]") -> ErrorCode:
        answer = self.client.receive(sent)
        if answer.error_code == ErrorCode.NONE:
            self.producer_id, self.epoch, self.sequences = answer.producer_id, answer.producer_epoch, {}
        return ErrorCode(answer.error_code)

    def end(self, *, is_commit: bool = True) -> ErrorCode:
        return self.receive_end(self.send_end(is_commit=is_commit))


def values(client: Connection, partition: int = 0, *, isolation_level: int = READ_COMMITTED) -> list[bytes]:
    """Return the visible values, dropping aborted records by the response's aborted transactions as clients do."""
    request = fetch_request("t", partitions=(partition,))
    request.isolation_level = isolation_level
    (data,) = client.request(request, FetchResponse, FETCH_VERSION).responses[0].partitions
    assert data.error_code == ErrorCode.NONE
    visible: list[bytes] = []
    aborted: set[int] = set()
    starts = sorted(
        (transaction.first_offset, transaction.producer_id) for transaction in data.aborted_transactions or ()
    )
    assert isinstance(data.records, memoryview)
    records = bytes(data.records)
    for position, header in iter_headers(memoryview(records)):
        while starts and starts[0][0] <= header.base_offset:
            aborted.add(starts.pop(0)[1])
        if header.is_control:
            aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            visible += [record.value or b"" for record in iter_records(records, position, bytes_max=1 << 20)]
    return visible


def committed(client: Connection, group: str = "g", *, require_stable: bool = True) -> tuple[ErrorCode, int]:
    wanted = OffsetFetchRequestGroup(group_id=group, topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
    request = OffsetFetchRequest(groups=[wanted], require_stable=require_stable)
    (answer,) = client.request(request, OffsetFetchResponse, 9).groups
    partition = answer.topics[0].partitions[0]
    return ErrorCode(partition.error_code), partition.committed_offset


def is_loaded(shell: Shell) -> bool:
    """Return True if the transactions are loaded, and the prepared ones completed."""
    runtime = shell.services.transactions.runtime
    return runtime.is_ready and not any(context.shard.prepared_ids() for context in runtime.active_contexts())


def state_of(shell: Shell, name: str = "x") -> TransactionState:
    return shell.call(lambda: shell.services.transactions.describe(name)).state


def test_a_commit_is_acknowledged_and_visible_once_it_is_durable() -> None:
    files = HeldFiles(MemoryFiles())
    with Shell(files=files) as shell, closing(shell.client()) as client, closing(shell.client()) as reader:
        shell.create("t", 2)
        producer = TransactionalClient(client)
        for partition in PARTITIONS:
            assert producer.write(b"a", partition.partition) is ErrorCode.NONE
        assert values(reader) == []
        assert values(reader, isolation_level=0) == [b"a"]
        files.hold()
        sent = producer.send_end()
        until(lambda: files.waiting)
        assert values(reader) == values(reader, 1) == []
        files.release()
        assert producer.receive_end(sent) is ErrorCode.NONE
        assert values(reader) == values(reader, 1) == [b"a"]


def test_the_next_transaction_may_begin_at_once_and_is_another() -> None:
    with Shell() as shell, closing(shell.client()) as client:
        shell.create("t", 2)
        producer = TransactionalClient(client)
        for number in range(6):
            assert producer.write(str(number).encode()) is ErrorCode.NONE
            assert producer.end(is_commit=number % 3 != 0) is ErrorCode.NONE
        assert values(client) == [b"1", b"2", b"4", b"5"]


@pytest.mark.slow
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.long), 4])
def test_a_transaction_is_whole_after_a_power_loss(step: int) -> None:
    """The power loss happens after every `step`-th operation on the disk."""
    settings = {"storage": {"wal_file_bytes": 8192}}
    files = RecordingFiles()
    with Shell(settings, files=files) as shell, closing(shell.client()) as client:
        shell.create("t", 2)
        producer = TransactionalClient(client)
        start = len(files.journal.ops)
        for number in range(3):
            for partition in PARTITIONS:
                assert producer.write(str(number).encode(), partition.partition) is ErrorCode.NONE
            assert producer.commit_offset(number) is ErrorCode.NONE
            assert producer.end(is_commit=number % 2 == 0) is ErrorCode.NONE
            files.mark(number)
        journal = files.journal
    for state in crash_states(journal, prefixes=range(start, len(journal.ops) + 1, step)):
        with Shell(settings, files=state.files) as again, closing(again.client()) as client:
            again.until(lambda again=again: is_loaded(again))  # type: ignore[misc]
            ended = max(map(int, map(str, state.marks)), default=-1)
            first, second = (values(client, partition.partition) for partition in PARTITIONS)
            assert first == second, f"torn: {state}"
            assert first in ([], [b"0"], [b"0", b"2"])
            assert len(first) >= ended // 2 + 1, f"lost: {state}"
            code, offset = committed(client)
            if code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                assert offset == (int(first[-1]) if first else -1), str(state)
            # The open transaction is continued, or aborted by the next producer; none hangs.
            producer = TransactionalClient(client)
            assert producer.write(b"new") is ErrorCode.NONE
            assert producer.end() is ErrorCode.NONE
            assert values(client) == [*first, b"new"], str(state)
            for log in again.call(again.services.topics.logs):
                assert log.producers.open_transactions() == []


def test_orphaned_open_transactions_are_aborted_at_startup(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        TransactionalClient(client).write(b"lost")
        # As after a power loss without syncs that lost the coordinator's log but not the records.
        shell.run(shell.services.topics.delete(TRANSACTION_STATE))
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.until(lambda: is_loaded(shell))
        shell.until(lambda: shell.log("t").last_stable_offset == 2)
        assert values(client) == []
        assert "unregistered transaction found" in caplog.text


def test_orphaned_transactions_are_aborted_later_if_the_disk_is_full_at_startup() -> None:
    memory = MemoryFiles()
    with Shell(files=memory) as shell, closing(shell.client()) as client:
        shell.create("t")
        TransactionalClient(client).write(b"lost")
        shell.run(shell.services.topics.delete(TRANSACTION_STATE))
    files = FaultyFiles(memory, 1, errno.ENOSPC, only={"pwrite"}, matching=lambda path: path.startswith("t-0/"))
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.until(lambda: files.calls > 1)
        shell.until(lambda: shell.log("t").producers.open_transactions() == [])
        assert values(client) == []


def test_a_marker_that_cannot_be_written_is_written_later() -> None:
    files = FaultyFiles(
        MemoryFiles(), only={"pwrite"}, matching=lambda path: path.startswith("t-1/"), error=errno.ENOSPC
    )
    with Shell(files=files) as shell, closing(shell.client()) as client, closing(shell.client()) as reader:
        shell.create("t", 2)
        producer = TransactionalClient(client)
        for partition in PARTITIONS:
            producer.write(b"a", partition.partition)
        files.fail_at = files.calls + 1
        assert producer.end() is ErrorCode.NONE
        assert state_of(shell) is TransactionState.PREPARE_COMMIT
        assert values(reader) == [b"a"]
        assert values(reader, 1) == []
        # The producer gets a retriable error, and its transaction is unchanged.
        assert producer.write(b"b") is ErrorCode.NOT_ENOUGH_REPLICAS
        shell.until(lambda: state_of_now(shell) is TransactionState.COMPLETE_COMMIT)
        assert values(reader, 1) == [b"a"]
        assert producer.write(b"b") is ErrorCode.NONE


def state_of_now(shell: Shell) -> TransactionState:
    """Return the state, for callers on the event loop."""
    return shell.services.transactions.describe("x").state


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    with Shell() as shell, closing(shell.client()) as client:
        shell.create("t")
        producer = TransactionalClient(client, timeout_ms=50)
        assert producer.write(b"late") is ErrorCode.NONE
        shell.until(lambda: state_of_now(shell) is TransactionState.COMPLETE_ABORT)
        assert producer.write(b"later") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert producer.end() is ErrorCode.PRODUCER_FENCED
        assert values(client) == []
        assert shell.log("t").producers.open_transactions() == []


def test_a_producer_with_the_same_transactional_id_takes_over() -> None:
    with Shell() as shell, closing(shell.client()) as client:
        shell.create("t")
        zombie = TransactionalClient(client)
        assert zombie.write(b"zombie") is ErrorCode.NONE
        assert zombie.commit_offset(7) is ErrorCode.NONE
        heir = TransactionalClient(client)
        assert zombie.write(b"zombie") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert zombie.commit_offset(8) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert zombie.end() is ErrorCode.PRODUCER_FENCED
        assert heir.write(b"heir") is ErrorCode.NONE
        assert heir.end() is ErrorCode.NONE
        assert values(client) == [b"heir"]
        assert committed(client) == (ErrorCode.NONE, -1)


def test_many_that_take_over_at_once_get_an_epoch_each() -> None:
    with Shell() as shell:
        shell.create("t")
        clients = [shell.client() for _ in range(5)]
        for round_ in range(4):
            TransactionalClient(clients[0]).write(b"open")
            request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
            sent = [(client, client.send(request, InitProducerIdResponse, 5)) for client in clients]
            answers = [client.receive(ticket) for client, ticket in sent]
            given = [answer.producer_epoch for answer in answers if answer.error_code == ErrorCode.NONE]
            refused = {ErrorCode(answer.error_code) for answer in answers if answer.error_code}
            assert len(set(given)) == len(given) >= 1, round_
            assert refused <= {ErrorCode.CONCURRENT_TRANSACTIONS}
        for client in clients:
            client.close()


def test_a_late_end_has_no_effect_on_the_next_transaction() -> None:
    with Shell() as shell, closing(shell.client()) as client:
        shell.create("t")
        producer = TransactionalClient(client)
        producer.write(b"first")
        late = EndTxnRequest(
            transactional_id="x", producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=True
        )
        assert producer.end() is ErrorCode.NONE
        # Ending twice has the effect of once, as long as no other transaction has begun.
        again = client.request(late, EndTxnResponse, 5)
        assert (again.error_code, again.producer_epoch) == (ErrorCode.NONE, producer.epoch)
        assert producer.write(b"second") is ErrorCode.NONE
        assert client.request(late, EndTxnResponse, 5).error_code != ErrorCode.NONE
        assert values(client) == [b"first"]
        assert producer.end(is_commit=False) is ErrorCode.NONE
        assert values(client) == [b"first"]


@pytest.mark.parametrize("store", ["topic", "memory"])
def test_offsets_of_a_transaction_count_when_it_is_committed(store: str) -> None:
    with Shell({"groups": {"offsets": store}}) as shell, closing(shell.client()) as client:
        shell.create("t")
        producer = TransactionalClient(client)
        assert producer.commit_offset(1) is ErrorCode.NONE
        assert committed(client) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert committed(client, require_stable=False) == (ErrorCode.NONE, -1)
        assert producer.end() is ErrorCode.NONE
        assert committed(client) == (ErrorCode.NONE, 1)
        producer.commit_offset(2)
        assert producer.end(is_commit=False) is ErrorCode.NONE
        assert committed(client) == (ErrorCode.NONE, 1)


def test_offsets_of_a_transaction_that_was_open_at_a_crash_are_decided_with_it() -> None:
    files = MemoryFiles()
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        producer = TransactionalClient(client)
        producer.commit_offset(1)
        producer.end()
        producer.commit_offset(2)
        with Shell(files=MemoryFiles(files)) as again, closing(again.client()) as another:
            again.until(lambda: is_loaded(again))
            assert committed(another) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
            TransactionalClient(another)
            assert committed(another) == (ErrorCode.NONE, 1)
        assert producer.end() is ErrorCode.NONE
        with Shell(files=MemoryFiles(files)) as again, closing(again.client()) as another:
            again.until(lambda: is_loaded(again))
            assert committed(another) == (ErrorCode.NONE, 2)


def test_a_deleted_topic_does_not_block_a_transaction() -> None:
    with Shell() as shell, closing(shell.client()) as client:
        shell.create("t", 2)
        producer = TransactionalClient(client)
        producer.write(b"a")
        shell.run(shell.services.topics.delete("t"))
        assert producer.end() is ErrorCode.NONE
        assert state_of(shell) is TransactionState.COMPLETE_COMMIT


def test_a_coordinator_refuses_requests_while_it_is_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        producer = TransactionalClient(client)
        producer.write(b"a")

    async def never(_transactions: object) -> None:
        return

    with monkeypatch.context() as patch:
        patch.setattr("logbrook.server.coordinators.runtime.CoordinatorRuntime.load_all", never)
        with Shell(files=MemoryFiles(files)) as shell, closing(shell.client()) as client:
            producer.client = client
            request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1_000)
            answer = client.request(request, InitProducerIdResponse, 5)
            assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert producer.end() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert producer.commit_offset(1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            # Errors that producers retry.
            assert producer.write(b"b") is ErrorCode.NOT_ENOUGH_REPLICAS
    with Shell(files=MemoryFiles(files)) as shell, closing(shell.client()) as client:
        shell.until(lambda: is_loaded(shell))
        producer.client = client
        assert producer.write(b"b") is ErrorCode.NONE
        assert producer.end() is ErrorCode.NONE
        assert values(client) == [b"a", b"b"]


def test_a_reader_of_committed_records_is_woken_by_the_commit() -> None:
    with Shell() as shell, closing(shell.client()) as client, closing(shell.client()) as reader:
        shell.create("t")
        producer = TransactionalClient(client)
        request = fetch_request("t", wait_ms=20_000, min_bytes=100)
        request.isolation_level = READ_COMMITTED
        sent = reader.send(request, FetchResponse, FETCH_VERSION)
        producer.write(b"a" * 100)
        producer.end()
        (data,) = reader.receive(sent).responses[0].partitions
        assert data.records


def test_internal_topics_are_no_part_of_a_clients_transaction() -> None:
    with Shell() as shell, closing(shell.client()) as client:
        shell.create("t")
        producer = TransactionalClient(client)
        producer.commit_offset(1)
        batch = build_batch(
            [Record(value=b"x")],
            producer_id=ProducerId(producer.producer_id),
            base_sequence=0,
            producer_epoch=ProducerEpoch(0),
            transactional=True,
        )
        for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
            request = produce_request(topic, batch)
            request.transactional_id = "x"
            answer = client.request(request, ProduceResponse, PRODUCE_VERSION)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def transactional_without_id(client: Connection, producer: TransactionalClient) -> int:
    batch = build_batch(
        [Record(value=b"x")],
        producer_id=ProducerId(producer.producer_id),
        base_sequence=0,
        producer_epoch=ProducerEpoch(0),
        transactional=True,
    )
    answer = client.request(produce_request("t", batch), ProduceResponse, PRODUCE_VERSION)
    return answer.responses[0].partition_responses[0].error_code


def id_without_transactional(client: Connection, producer: TransactionalClient) -> int:
    batch = build_batch(
        [Record(value=b"x")],
        producer_id=ProducerId(producer.producer_id),
        base_sequence=0,
        producer_epoch=ProducerEpoch(0),
    )
    request = produce_request("t", batch)
    request.transactional_id = "x"
    return client.request(request, ProduceResponse, PRODUCE_VERSION).responses[0].partition_responses[0].error_code


@pytest.mark.parametrize("write", [transactional_without_id, id_without_transactional])
def test_a_transactional_batch_outside_a_transaction_is_refused(
    write: Callable[[Connection, TransactionalClient], int],
) -> None:
    with Shell() as shell, closing(shell.client()) as client:
        shell.create("t")
        assert write(client, TransactionalClient(client)) == ErrorCode.INVALID_TXN_STATE
        assert shell.log("t").log_end_offset == 0


def test_an_unused_transactional_id_expires() -> None:
    clock = FakeClock()
    settings = {"transactions": {"id_expiration_ms": 1_000}}
    with Shell(settings, clock=clock) as shell, closing(shell.client()) as client:
        shell.create("t")
        producer = TransactionalClient(client)
        transactions = shell.services.transactions
        clock.advance(2_000)
        shell.call(transactions.runtime.tick)
        assert shell.call(transactions.list_transactions) == []
        assert producer.write(b"a") is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_an_end_whose_record_is_refused_changes_nothing_and_can_be_retried() -> None:
    files = FaultyFiles(
        MemoryFiles(),
        only={"pwrite"},
        matching=lambda path: path.startswith(f"{TRANSACTION_STATE}-0/"),
        error=errno.ENOSPC,
    )
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        producer = TransactionalClient(client)
        assert producer.write(b"a") is ErrorCode.NONE
        files.fail_at = files.calls + 1
        assert producer.end() is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert state_of(shell) is TransactionState.ONGOING
        assert producer.end() is ErrorCode.NONE
        assert values(client) == [b"a"]


def test_an_end_that_cannot_be_committed_fails_and_leaves_the_transaction_unchanged() -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync"}, matching=lambda path: path.startswith("wal/"))
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        producer = TransactionalClient(client)
        assert producer.write(b"a") is ErrorCode.NONE
        files.fail_at = files.calls + 1
        assert producer.end() is ErrorCode.COORDINATOR_NOT_AVAILABLE
        shell.until(lambda: shell.services.transactions.runtime.is_ready)
        assert state_of(shell) is TransactionState.ONGOING
        assert values(client) == []
