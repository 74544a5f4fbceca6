"""The transactions that have begun and are not completed: whose they are, and which is the oldest.

The oldest is asked for by each look at the metrics, so it is at the top of a heap. What ended since it came there is
dropped when it gets to the top, or when there is more of it than of the rest.
"""

import heapq

from logbrook.core.transactions.transaction import Transaction

# Entries of transactions that ended are dropped when they are more than this and more than the others.
_STALE_MAX = 1_000


class OpenTransactions:
    def __init__(self) -> None:
        self._by_producer_id: dict[int, Transaction] = {}
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._by_producer_id)

    def of(self, producer_id: int) -> Transaction | None:
        return self._by_producer_id.get(producer_id)

    def update(self, before: Transaction | None, after: Transaction | None) -> None:
        """A transactional id has changed from one to the other; None where there is none."""
        if before is not None and before.state.is_open:
            self._by_producer_id.pop(before.producer_id, None)
        if after is not None and after.state.is_open:
            self._by_producer_id[after.producer_id] = after
            if before is None or not before.state.is_open or _entry(before) != _entry(after):
                heapq.heappush(self._heap, _entry(after))
                self._drop_stale()

    def oldest_start_ms(self) -> int | None:
        while self._heap:
            if self._is_current(self._heap[0]):
                return self._heap[0][0]
            heapq.heappop(self._heap)
        return None

    def _drop_stale(self) -> None:
        if len(self._heap) > 2 * len(self._by_producer_id) + _STALE_MAX:
            self._heap = [_entry(transaction) for transaction in self._by_producer_id.values()]
            heapq.heapify(self._heap)

    def _is_current(self, entry: tuple[int, int]) -> bool:
        transaction = self._by_producer_id.get(entry[1])
        return transaction is not None and _entry(transaction) == entry


def _entry(transaction: Transaction) -> tuple[int, int]:
    return transaction.start_ms, transaction.producer_id
