"""The life of a broker in a cluster: what its lease allows it to do, and what it has lost when it comes back.

A broker counts its lease from the sending of the last renewal that was answered, on a monotonic clock: the store cannot
have expired it earlier. When that time has passed, the broker does not know whether it still leads. It serves reads up
to its high watermark and acknowledges a write, whatever `acks` says, only when every in-sync replica has it. Safety
does not rest on the lease: epochs fence.
"""

import math
from enum import Enum, auto
from typing import NamedTuple

from logbrook.core.cluster.image import NodeRecord
from logbrook.model import LogbrookError


class BrokerLease:
    """The lease of one registration, as its broker sees it."""

    def __init__(self, ttl_s: float) -> None:
        self.ttl_s = ttl_s
        self._certain_until_s: float | None = None
        self._lost_s = -math.inf

    def renewed(self, sent_s: float) -> None:
        """A renewal that was sent at this time was answered. Answers may arrive in any order."""
        if sent_s < self._lost_s:
            return
        until_s = sent_s + self.ttl_s
        if self._certain_until_s is None or until_s > self._certain_until_s:
            self._certain_until_s = until_s

    def lost(self, now_s: float) -> None:
        """The lease does not exist any more. Renewals from before do not count, whenever their answers arrive."""
        self._certain_until_s = None
        self._lost_s = now_s

    def is_certain(self, now_s: float) -> bool:
        """True if no other broker can have taken over."""
        return self._certain_until_s is not None and now_s < self._certain_until_s

    def age_s(self, now_s: float) -> float:
        """Return the time since the last answered renewal was sent; 0 without one."""
        return 0.0 if self._certain_until_s is None else now_s - (self._certain_until_s - self.ttl_s)

    @property
    def renewal_interval_s(self) -> float:
        """Three renewals may fail before the lease ends."""
        return self.ttl_s / 4


class DirectoryIdentity(NamedTuple):
    """The identity of a data directory, durable in it.

    `directory_id` is random and never changes. `registration_ids` are those of the last registration and of all
    attempts since: the directory has a new id before the store gets it, and an attempt may have an unknown outcome.
    """

    directory_id: str
    registration_ids: tuple[str, ...] = ()

    def begin_registration(self, registration_id: str) -> "DirectoryIdentity":
        """Return the identity to save before a registration."""
        return self._replace(registration_ids=(*self.registration_ids, registration_id))

    def finish_registration(self) -> "DirectoryIdentity":
        """Return the identity to save after the registration was committed."""
        return self._replace(registration_ids=self.registration_ids[-1:])


class DirectoryLoss(Enum):
    """The way in which a data directory lacks records that its node has acknowledged."""

    NOTHING = auto()
    # Another directory: the disk was replaced.
    REPLACED = auto()
    # The directory is from before the node's last registration: a restored backup.
    RESTORED = auto()
    # Records that were not synced may be lost with the page cache.
    UNSYNCED = auto()


class NodeIdInUseError(LogbrookError):
    """Another live broker has the node id."""

    def __init__(self, node_id: int, address: str) -> None:
        super().__init__(f"node id {node_id} is in use by the broker at {address}; choose another --node")


def directory_loss(
    node: NodeRecord | None, identity: DirectoryIdentity, boot_id: str, *, syncs_before_reply: bool
) -> DirectoryLoss:
    """Compare a data directory with what the cluster knows of its node.

    `syncs_before_reply` is True with `durability = "fsync"`. A node that has lost something leaves every ISR and ELR
    before it registers.
    """
    if node is None:
        return DirectoryLoss.NOTHING
    if node.directory_id != identity.directory_id:
        return DirectoryLoss.REPLACED
    if node.registration_id not in identity.registration_ids:
        return DirectoryLoss.RESTORED
    if syncs_before_reply or node.stopped_cleanly or (boot_id and node.boot_id == boot_id):
        return DirectoryLoss.NOTHING
    return DirectoryLoss.UNSYNCED
