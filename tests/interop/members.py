"""Polling of group members in turn until a condition holds."""

from collections.abc import Callable, Sequence

from tests.interop.clients.interface import Member, Received
from tests.interop.waiting import WITHIN_S, Deadline

_POLL_S = 0.02


def poll_until(
    members: Sequence[Member],
    happened: Callable[[], bool] = lambda: True,
    *,
    count: int = 0,
    into: list[Received] | None = None,
    within_s: float = WITHIN_S,
) -> list[Received]:
    """Poll until the condition holds and at least `count` records have arrived. Returns all records received.

    The list grows while records arrive. Raises AssertionError after a timeout.
    """
    received: list[Received] = [] if into is None else into
    deadline = Deadline(within_s)
    while len(received) < count or not happened():
        assignments = [sorted(member.assignment) for member in members]
        deadline.check(f"{len(received)} of {count} records came, and the assignments are {assignments}")
        for member in members:
            received += member.poll(_POLL_S)
    return received


def shares(members: Sequence[Member], partitions: int) -> Callable[[], bool]:
    """Return a condition: each partition is assigned to exactly one member and every member has at least one."""

    def are_shared() -> bool:
        held = [member.assignment for member in members]
        numbers = sorted(number for assignment in held for number in assignment)
        return numbers == list(range(partitions)) and all(held)

    return are_shared
