"""A bounded cache that forgets what was used longest ago, and says so."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """At most `capacity` values. `on_evict(key, value)` is called for each one that leaves, however it leaves."""

    def __init__(self, capacity: int, on_evict: Callable[[K, V], None]) -> None:
        self._capacity = capacity
        self._on_evict = on_evict
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        self.remove(key)
        self._entries[key] = value
        while len(self._entries) > self._capacity:
            self.evict_oldest()

    def remove(self, key: K) -> None:
        value = self._entries.pop(key, None)
        if value is not None:
            self._on_evict(key, value)

    def take(self, key: K) -> V | None:
        """Take one out, without calling back."""
        return self._entries.pop(key, None)

    def pop(self) -> tuple[K, V] | None:
        """Take out what was used longest ago, without calling back."""
        return self._entries.popitem(last=False) if self._entries else None

    def evict_oldest(self) -> bool:
        """Make room for one. False when there is nothing to evict."""
        if not self._entries:
            return False
        self._on_evict(*self._entries.popitem(last=False))
        return True

    def clear(self) -> None:
        while self.evict_oldest():
            continue

    def __len__(self) -> int:
        return len(self._entries)
