"""Helpers of the coordinator tests."""

from typing import Any

from logbrook.server.coordinators.context import ShardState
from logbrook.server.coordinators.runtime import CoordinatorRuntime
from logbrook.server.services import Services


def make_loading(runtime: CoordinatorRuntime[Any]) -> None:
    """Set all shards to loading, as while their partition is read."""
    for context in runtime._contexts:
        context.state = ShardState.LOADING


def make_active(runtime: CoordinatorRuntime[Any]) -> None:
    """Undo `make_loading`."""
    for context in runtime._contexts:
        context.state = ShardState.ACTIVE


def pending_replies(services: Services) -> int:
    """Return the number of JoinGroup and SyncGroup requests that wait for other members."""
    return sum(len(context.replies) for context in services.groups.runtime._contexts)
