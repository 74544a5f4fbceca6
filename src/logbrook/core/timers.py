"""Timer queue of a coordinator shard: one entry per group or transactional id.

Almost all deadlines are extended before they are reached: a heartbeat extends a session, a commit cancels a transaction
timeout. Extending does not touch the queue. An id is queued for the earliest time at which something may be due; if
nothing is due then, the caller queues it again for its real deadline. An entry may be early, never late.
"""

import heapq

# Stale entries are tolerated up to this number, or up to the number of current ones.
_STALE_MAX = 1_000


class Timers:
    """Min-heap of ids by deadline. Owned by its shard."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        # The earliest deadline of each id; other heap entries of the id are stale.
        self._queued_ms: dict[str, int] = {}

    def next_ms(self) -> int | None:
        while self._heap:
            deadline_ms, timer_id = self._heap[0]
            if self._queued_ms.get(timer_id) == deadline_ms:
                return deadline_ms
            heapq.heappop(self._heap)
        return None

    def queue(self, timer_id: str, deadline_ms: int | None) -> None:
        """Queue the id for this time, unless it is queued for an earlier one."""
        if deadline_ms is None:
            return
        queued_ms = self._queued_ms.get(timer_id)
        if queued_ms is None or deadline_ms < queued_ms:
            self._queued_ms[timer_id] = deadline_ms
            heapq.heappush(self._heap, (deadline_ms, timer_id))
            if len(self._heap) > 2 * len(self._queued_ms) + _STALE_MAX:
                self._heap = [(deadline_ms, timer_id) for timer_id, deadline_ms in self._queued_ms.items()]
                heapq.heapify(self._heap)

    def take_due(self, now_ms: int, count_max: int | None = None) -> list[str]:
        """Remove and return up to `count_max` ids that are due, the longest overdue first."""
        due: list[str] = []
        while len(due) != count_max and (next_ms := self.next_ms()) is not None and next_ms <= now_ms:
            _, timer_id = heapq.heappop(self._heap)
            del self._queued_ms[timer_id]
            due.append(timer_id)
        return due

    def forget(self, timer_id: str) -> None:
        self._queued_ms.pop(timer_id, None)
