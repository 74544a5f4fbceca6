"""When each group wants to be looked at.

Most deadlines are sessions, and almost all of them move on before they are reached: each heartbeat moves one. So a
heartbeat does not touch this queue at all. A group is queued for the earliest time at which something might be due;
when it is looked at and nothing is, it is queued again for its real deadline. An entry may thus be early, never late.
"""

import heapq

# Stale entries are dropped when they are more than this and more than the others.
_STALE_MAX = 1_000


class Timers:
    """Groups by the time they want to be looked at."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        # The earliest entry of each group. Others of it in the heap are stale.
        self._queued_ms: dict[str, int] = {}

    def next_ms(self) -> int | None:
        while self._heap:
            deadline_ms, group_id = self._heap[0]
            if self._queued_ms.get(group_id) == deadline_ms:
                return deadline_ms
            heapq.heappop(self._heap)
        return None

    def queue(self, group_id: str, deadline_ms: int | None) -> None:
        """Look at the group at this time, or earlier if it was queued for an earlier time."""
        if deadline_ms is None:
            return
        queued_ms = self._queued_ms.get(group_id)
        if queued_ms is None or deadline_ms < queued_ms:
            self._queued_ms[group_id] = deadline_ms
            heapq.heappush(self._heap, (deadline_ms, group_id))
            if len(self._heap) > 2 * len(self._queued_ms) + _STALE_MAX:
                self._heap = [(deadline_ms, group_id) for group_id, deadline_ms in self._queued_ms.items()]
                heapq.heapify(self._heap)

    def take_due(self, now_ms: int) -> list[str]:
        """The groups to look at now, the longest overdue first. They are no longer queued."""
        due: list[str] = []
        while (next_ms := self.next_ms()) is not None and next_ms <= now_ms:
            _, group_id = heapq.heappop(self._heap)
            del self._queued_ms[group_id]
            due.append(group_id)
        return due

    def forget(self, group_id: str) -> None:
        self._queued_ms.pop(group_id, None)
