"""Polling the members of a group in turn, until they are where they should be."""

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
    """All that they got until it had happened, and there were so many; it grows as they get it.

    Raises AssertionError if it takes too long.
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
    """Whether every one of them has some partitions, none has one of another, and none is left."""

    def are_shared() -> bool:
        held = [member.assignment for member in members]
        numbers = sorted(number for one in held for number in one)
        return numbers == list(range(partitions)) and all(held)

    return are_shared
