"""Each planted bug of the transaction coordinator is found by its check; the check passes without the bug."""

import errno
from collections.abc import Callable, Sequence

import pytest

from logbrook.core.transactions.messages import TransactionMarkers
from logbrook.core.transactions.transaction import TransactionState
from logbrook.model import LogbrookError, TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from logbrook.server.coordinators import transactions
from logbrook.server.coordinators.transactions import TransactionContext, TransactionCoordinatorService
from logbrook.testing import FaultyFiles, MemoryFiles
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.kit import Peer
from tests.unit.server.handlers.transaction_kit import Identity, init, write
from tests.unit.server.shell_kit import HeldFiles

PARTITIONS = 3


def begun(shell: HandlerShell, peer: Peer) -> Identity:
    """A producer whose transaction has a record in each partition of the topic `t`."""
    shell.create("t", PARTITIONS)
    identity = init(peer)
    for partition in range(PARTITIONS):
        assert write(peer, identity, "t", partition=partition) == ErrorCode.NONE
    return identity


def commit_of(identity: Identity) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=identity.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=True,
    )


def open_partitions(shell: HandlerShell) -> list[int]:
    """Return the partitions in which READ_COMMITTED readers do not see the transaction."""
    logs = [shell.log("t", partition) for partition in range(PARTITIONS)]
    return [log.partition.partition for log in logs if log.last_stable_offset < log.log_end_offset]


def open_when_answered() -> list[int]:
    """Return the open partitions at the time of the EndTxn response, if the disk completes only one sync."""
    files = HeldFiles(MemoryFiles())
    with HandlerShell(files=files) as shell, Peer(shell) as peer:
        identity = begun(shell, peer)
        files.hold()
        try:
            sent = peer.send(commit_of(identity), EndTxnResponse)
            shell.until(lambda: sent.frame.done() or files.waiting)
            while not sent.frame.done():
                files.let_one_through()
                shell.until(lambda: sent.frame.done() or files.waiting)
            return open_partitions(shell)
        finally:
            files.release()


def open_after_a_failed_marker() -> list[int]:
    """Return the open partitions after completion, if the disk was full for the marker of partition 1."""
    files = FaultyFiles(
        MemoryFiles(), only={"pwrite"}, matching=lambda path: path.startswith("t-1/"), error=errno.ENOSPC
    )
    with HandlerShell(files=files) as shell, Peer(shell) as peer:
        identity = begun(shell, peer)
        files.fail_at = files.calls + 1
        assert peer.ask(commit_of(identity), EndTxnResponse).error_code == ErrorCode.NONE
        coordinator = shell.services.transactions
        shell.until(lambda: coordinator.describe(identity.transactional_id).state is TransactionState.COMPLETE_COMMIT)
        return open_partitions(shell)


async def answer_after_the_first_marker(
    service: TransactionCoordinatorService, context: TransactionContext, transactional_id: str
) -> None:
    """Reply after the first marker, while the others are still being written."""
    await service.runtime.committed(context)
    markers = context.shard.markers(transactional_id)
    assert markers is not None
    await service.marker_writer.write(markers, markers.partitions[0])
    service.own(service._try_complete(context, markers, markers.partitions[1:]))


async def complete_after_the_first_marker(
    service: TransactionCoordinatorService,
    context: TransactionContext,
    markers: TransactionMarkers,
    partitions: Sequence[TopicPartition],
) -> None:
    """Complete after the first marker, ignoring the others and their errors."""
    writes = [service.marker_writer.write(markers, partition) for partition in partitions]
    for number, marker in enumerate(writes):
        try:
            await marker
        except LogbrookError:
            assert number > 0
    transactional_id = markers.transactional_id
    service._append(context, transactional_id, context.shard.complete(transactional_id, service.runtime.now_ms))


BUGS: dict[str, tuple[Callable[[], list[int]], str, object]] = {
    "EndTxn is answered after the first marker": (open_when_answered, "_end", answer_after_the_first_marker),
    "a transaction is completed after its first marker": (
        open_after_a_failed_marker,
        "_try_complete",
        complete_after_the_first_marker,
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_in_the_end_of_transactions_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_open, attribute, planted = BUGS[bug]
    monkeypatch.setattr(transactions, "_RETRY_S", 0.01)
    with monkeypatch.context() as patched:
        patched.setattr(TransactionCoordinatorService, attribute, planted)
        assert find_open()
    assert find_open() == []
