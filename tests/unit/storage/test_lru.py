"""The bounded cache: what it keeps, what it lets go, and that it says so."""

from logbrook.storage.lru import LruCache


class Evictions(list[tuple[str, int]]):
    def __call__(self, key: str, value: int) -> None:
        self.append((key, value))


def filled(capacity: int) -> tuple[LruCache[str, int], Evictions]:
    evictions = Evictions()
    cache: LruCache[str, int] = LruCache(capacity, evictions)
    for value, key in enumerate("abc"[:capacity]):
        cache.put(key, value)
    return cache, evictions


def test_what_fits_stays() -> None:
    cache, evictions = filled(3)
    assert [cache.get(key) for key in "abc"] == [0, 1, 2]
    assert len(cache) == 3
    assert evictions == []


def test_what_was_not_put_in_is_not_there() -> None:
    cache, _ = filled(3)
    assert cache.get("z") is None


def test_the_oldest_makes_room() -> None:
    cache, evictions = filled(3)
    cache.put("d", 3)
    assert evictions == [("a", 0)]
    assert cache.get("a") is None


def test_a_look_makes_an_entry_young() -> None:
    cache, evictions = filled(3)
    cache.get("a")
    cache.put("d", 3)
    assert evictions == [("b", 1)]


def test_a_value_that_is_replaced_is_evicted() -> None:
    cache, evictions = filled(3)
    cache.put("b", 9)
    assert evictions == [("b", 1)]
    assert cache.get("b") == 9
    assert len(cache) == 3


def test_a_value_that_is_removed_is_evicted_once() -> None:
    cache, evictions = filled(3)
    cache.remove("b")
    cache.remove("b")
    assert evictions == [("b", 1)]


def test_a_value_that_is_popped_leaves_without_a_word() -> None:
    cache, evictions = filled(2)
    assert [cache.pop(), cache.pop(), cache.pop()] == [("a", 0), ("b", 1), None]
    assert evictions == []


def test_the_oldest_can_be_evicted_on_demand() -> None:
    cache, evictions = filled(2)
    assert [cache.evict_oldest() for _ in range(3)] == [True, True, False]
    assert evictions == [("a", 0), ("b", 1)]


def test_clearing_evicts_everything_oldest_first() -> None:
    cache, evictions = filled(3)
    cache.clear()
    assert evictions == [("a", 0), ("b", 1), ("c", 2)]
    assert len(cache) == 0
