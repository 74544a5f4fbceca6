"""`durability = "interval"`: an append completes at once."""

from logbrook.model.identifiers import Offset
from logbrook.storage.durability import IntervalDurability
from logbrook.storage.pending_append import CommittedOffset, PendingAppend


def test_an_append_is_done_when_it_is_submitted() -> None:
    line = CommittedOffset(Offset(0))
    durability = IntervalDurability(next_number=0)
    durability.reserve(b"orders-0", 1000)
    append = PendingAppend(line, Offset(0), Offset(5), -1, False)
    durability.submit(append, b"orders-0", Offset(0), 0, memoryview(b"data"))
    assert append.done
    assert line.offset == 5


def test_a_duplicate_is_complete_at_once() -> None:
    append = PendingAppend(CommittedOffset(Offset(5)), Offset(0), Offset(5), -1, True)
    IntervalDurability(next_number=0).submit_duplicate(append)
    assert append.done


def test_nothing_is_left_to_commit() -> None:
    durability = IntervalDurability(next_number=0)
    durability.submit(
        PendingAppend(CommittedOffset(Offset(0)), Offset(0), Offset(5), -1, False),
        b"orders-0",
        Offset(0),
        0,
        memoryview(b"data"),
    )
    assert durability.commit() == 0
    assert durability.bytes_in_use == 0


def test_numbers_continue_counting() -> None:
    durability = IntervalDurability(next_number=7)
    durability.submit(
        PendingAppend(CommittedOffset(Offset(0)), Offset(0), Offset(5), -1, False),
        b"orders-0",
        Offset(0),
        0,
        memoryview(b"data"),
    )
    assert durability.next_number == 8
    assert durability.skip_number() == durability.next_number == 9
