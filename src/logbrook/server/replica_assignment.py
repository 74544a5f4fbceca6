"""Replicas that a client wants to place by hand: each partition has one, and it is here."""

from collections.abc import Iterable, Sequence

from logbrook.protocol.error_codes import ErrorCode
from logbrook.server.refusals import RefusedError
from logbrook.server.services import Services


def check_replicas(services: Services, assignments: Iterable[Sequence[int]]) -> None:
    """Raises RefusedError unless each partition is assigned to this broker alone."""
    node_id = services.config.node_id
    if any(list(broker_ids) != [node_id] for broker_ids in assignments):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"there is one broker, so the replicas of a partition are [{node_id}]"
        )
