"""Changes of registrations that leaders propose, as of the ISR, and their results from the metadata store.

Those of one turn of the event loop are committed together: a broker that is lost was in the ISR of many partitions.
"""

from collections.abc import Sequence
from typing import TypeAlias

from logbrook.core.cluster.elections import ELECTIONS_PER_TRANSACTION
from logbrook.core.cluster.image import PartitionKey
from logbrook.core.replication.leader import PartitionLeader, ProposeRegistration
from logbrook.model.event_log import event_logger
from logbrook.ports import Clock
from logbrook.ports.metadata_store import MetadataStoreError, TransactionResult
from logbrook.server.cluster.background import BackgroundTasks
from logbrook.server.cluster.elector import Elector
from logbrook.server.cluster.probe import ClusterProbe
from logbrook.server.cluster.replica import Replica

_RETRY_MS = 200

_Proposed: TypeAlias = tuple[Replica, PartitionLeader, ProposeRegistration]

_logger = event_logger(__name__)


class RegistrationProposals:
    """One per broker, on the event loop. `tasks` are those of the owner."""

    def __init__(self, elector: Elector, clock: Clock, tasks: BackgroundTasks, probe: ClusterProbe) -> None:
        self._elector = elector
        self._clock = clock
        self._tasks = tasks
        self._probe = probe
        self._unsent: dict[PartitionKey, _Proposed] = {}

    def add(self, replica: Replica, proposal: ProposeRegistration) -> None:
        """Commit a proposal of the leader of this partition, which a tick may repeat, in the next turn of the loop."""
        assert replica.leader is not None
        if not self._unsent:
            self._tasks.spawn(self._commit_all())
        self._unsent[replica.key] = (replica, replica.leader, proposal)

    async def _commit_all(self) -> None:
        proposals = [*self._unsent.values()]
        self._unsent.clear()
        for number in range(0, len(proposals), ELECTIONS_PER_TRANSACTION):
            await self._commit(proposals[number : number + ELECTIONS_PER_TRANSACTION])

    async def _commit(self, proposals: Sequence[_Proposed]) -> None:
        changes = [self._elector.change_of_leader(replica.key, proposal) for replica, _, proposal in proposals]
        before = [set(leader.registration.isr) for _, leader, _ in proposals]
        try:
            results = await self._elector.commit_bundle(changes)
        except MetadataStoreError:
            self._on_failed(proposals, is_unknown=True)
            return
        refused = []
        for proposed, isr, result in zip(proposals, before, results, strict=True):
            replica, _, proposal = proposed
            if result.is_committed:
                self._probe.isr_shrinks += bool(isr - set(proposal.registration.isr))
                self._probe.isr_expansions += bool(set(proposal.registration.isr) - isr)
                _logger.info("ISR changed", partition=replica.partition, isr=list(proposal.registration.isr))
            else:
                refused.append(proposed)
        if refused:
            self._tasks.spawn(self._await_changes(refused, results))

    async def _await_changes(self, refused: Sequence[_Proposed], results: Sequence[TransactionResult]) -> None:
        """A refused proposal is given up if no other registration has arrived that explains it."""
        is_unknown = False
        try:
            await self._elector.wait_for(results)
        except MetadataStoreError:
            is_unknown = True
        self._on_failed(refused, is_unknown=is_unknown)

    def _on_failed(self, proposals: Sequence[_Proposed], *, is_unknown: bool) -> None:
        now_ms = int(self._clock.monotonic_s() * 1000)
        for _, leader, proposal in proposals:
            leader.on_proposal_failed(proposal, now_ms, _RETRY_MS, is_unknown=is_unknown)
