"""When each group, or each transactional id, wants to be looked at.

Almost all deadlines move on before they are reached: each heartbeat moves a session's, each transaction that ends
takes its timeout away. So these do not touch the queue at all. An id is queued for the earliest time at which
something might be due; when it is looked at and nothing is, it is queued again for its real deadline. An entry may
thus be early, never late.
"""

import heapq

# Stale entries are dropped when they are more than this and more than the others.
_STALE_MAX = 1_000


class Timers:
    """Ids by the time they want to be looked at."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        # The earliest entry of each id. Others of it in the heap are stale.
        self._queued_ms: dict[str, int] = {}

    def next_ms(self) -> int | None:
        while self._heap:
            deadline_ms, waiting_id = self._heap[0]
            if self._queued_ms.get(waiting_id) == deadline_ms:
                return deadline_ms
            heapq.heappop(self._heap)
        return None

    def queue(self, waiting_id: str, deadline_ms: int | None) -> None:
        """Look at it at this time, or earlier if it was queued for an earlier time."""
        if deadline_ms is None:
            return
        queued_ms = self._queued_ms.get(waiting_id)
        if queued_ms is None or deadline_ms < queued_ms:
            self._queued_ms[waiting_id] = deadline_ms
            heapq.heappush(self._heap, (deadline_ms, waiting_id))
            if len(self._heap) > 2 * len(self._queued_ms) + _STALE_MAX:
                self._heap = [(deadline_ms, waiting_id) for waiting_id, deadline_ms in self._queued_ms.items()]
                heapq.heapify(self._heap)

    def take_due(self, now_ms: int, count_max: int | None = None) -> list[str]:
        """What to look at now, the longest overdue first, so many at most. They are no longer queued."""
        due: list[str] = []
        while len(due) != count_max and (next_ms := self.next_ms()) is not None and next_ms <= now_ms:
            _, waiting_id = heapq.heappop(self._heap)
            del self._queued_ms[waiting_id]
            due.append(waiting_id)
        return due

    def forget(self, waiting_id: str) -> None:
        self._queued_ms.pop(waiting_id, None)
