from hypothesis import given
from hypothesis import strategies as st

from logbrook.core.timers import Timers


def test_the_earliest_timer_is_due_first() -> None:
    timers = Timers()
    timers.queue("b", 20)
    timers.queue("a", 10)
    assert timers.next_ms() == 10
    assert timers.take_due(20) == ["a", "b"]
    assert timers.next_ms() is None


def test_a_due_timer_is_removed_from_the_queue() -> None:
    timers = Timers()
    timers.queue("a", 10)
    assert timers.take_due(9) == []
    assert timers.take_due(10) == ["a"]
    assert timers.take_due(10) == []


def test_no_more_are_taken_than_asked_for() -> None:
    timers = Timers()
    for deadline_ms, waiting_id in enumerate("abc"):
        timers.queue(waiting_id, deadline_ms)
    assert timers.take_due(10, 2) == ["a", "b"]
    assert timers.next_ms() == 2
    assert timers.take_due(10, 2) == ["c"]


def test_an_earlier_time_wins_and_a_later_one_is_found_out_when_it_is_looked_at() -> None:
    timers = Timers()
    timers.queue("a", 10)
    timers.queue("a", 5)
    timers.queue("a", 30)
    assert timers.take_due(100) == ["a"]


def test_no_deadline_is_no_entry() -> None:
    timers = Timers()
    timers.queue("a", None)
    assert timers.next_ms() is None


def test_a_forgotten_group_is_not_due() -> None:
    timers = Timers()
    timers.queue("a", 10)
    timers.forget("a")
    assert timers.next_ms() is None
    timers.queue("a", 20)
    assert timers.take_due(10) == []
    assert timers.take_due(20) == ["a"]


def test_stale_entries_do_not_pile_up() -> None:
    timers = Timers()
    for deadline_ms in range(100_000, 0, -1):
        timers.queue("a", deadline_ms)
    assert len(timers._heap) < 2_000
    assert timers.next_ms() == 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50)), max_size=40))
def test_everything_is_due_by_its_earliest_deadline(queued: list[tuple[str, int]]) -> None:
    timers = Timers()
    earliest: dict[str, int] = {}
    for group_id, deadline_ms in queued:
        timers.queue(group_id, deadline_ms)
        earliest[group_id] = min(deadline_ms, earliest.get(group_id, deadline_ms))
    for now_ms in range(51):
        assert set(timers.take_due(now_ms)) == {timer for timer, ms in earliest.items() if ms == now_ms}
