"""Deletions of records (DeleteRecords) that wait until all in-sync replicas have them: a failover does not undo them.

Followers learn of a deletion from the log start offset in the response to their fetch, and confirm it with their own in
the next one.
"""

import asyncio

from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.server.cluster.errors import NotLeaderError
from logbrook.server.cluster.replica import Replica, ReplicaTable, WaitingDeletion
from logbrook.server.fetch_purgatory import FetchPurgatory


class RecordDeletions:
    """One per broker, on the event loop. `replica_fetches` has the waiting fetches of followers."""

    def __init__(self, table: ReplicaTable, loop: asyncio.AbstractEventLoop, replica_fetches: FetchPurgatory) -> None:
        self._table = table
        self._loop = loop
        self._replica_fetches = replica_fetches

    def begin(self, partition: TopicPartition, offset: Offset) -> "asyncio.Future[LogbrookError | None] | None":
        """The leader's log has deleted the records before the offset: return a future that ends when the others have.

        None if they have already. The result of the future is an error if leadership is lost. Raises NotLeaderError.
        """
        replica = self._table.by_partition.get(partition)
        if replica is None or replica.leader is None:
            raise NotLeaderError(partition)
        replica.leader.on_deletion(offset)
        self._replica_fetches.changed(partition)
        if replica.leader.has_deletion(offset):
            return None
        # Those whose request has timed out.
        replica.deletions = [waiting for waiting in replica.deletions if not waiting.done.done()]
        done: asyncio.Future[LogbrookError | None] = self._loop.create_future()
        replica.deletions.append(WaitingDeletion(offset, done))
        return done

    @staticmethod
    def complete(replica: Replica) -> None:
        """End the deletions that all in-sync replicas have by now."""
        leader = replica.leader
        assert leader is not None
        waiting, replica.deletions = replica.deletions, []
        for deletion in waiting:
            if not leader.has_deletion(deletion.offset):
                replica.deletions.append(deletion)
            elif not deletion.done.done():
                deletion.done.set_result(None)

    @staticmethod
    def fail(replica: Replica) -> None:
        """This broker does not lead any more: the new leader may lack the deletions."""
        waiting, replica.deletions = replica.deletions, []
        for deletion in waiting:
            if not deletion.done.done():
                deletion.done.set_result(NotLeaderError(replica.partition))
