"""Markers of transactions that are already decided in the log."""

from contextlib import closing

from logbrook.core.coordinator import ProducerIdentity
from logbrook.core.transactions.transaction import TransactionState
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from tests.unit.server.coordinators.test_transactions import PARTITIONS, TransactionalClient
from tests.unit.server.shell_kit import Shell


def test_no_marker_is_written_to_a_log_with_a_later_epoch() -> None:
    """The log survived a crash further than the coordinator, by a whole transaction. It refuses the marker forever."""
    with Shell() as shell, closing(shell.client()) as client:
        shell.create("t")
        producer = TransactionalClient(client)
        assert producer.write(b"x") is ErrorCode.NONE
        transactions = shell.services.transactions
        later = ProducerIdentity(ProducerId(producer.producer_id), ProducerEpoch(producer.epoch + 5))

        async def end_later() -> None:
            await transactions.marker_writer.append(PARTITIONS[0], later, is_commit=True, coordinator_epoch=1)

        shell.run(end_later())
        assert producer.end() is ErrorCode.NONE
        assert shell.call(lambda: transactions.describe(producer.name)).state is TransactionState.COMPLETE_COMMIT
