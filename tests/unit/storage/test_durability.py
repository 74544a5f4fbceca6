"""`durability = "interval"`: an append is done at once."""

from logbrook.storage.durability import IntervalDurability
from logbrook.storage.ticket import CommitLine, Ticket


def test_an_append_is_done_when_it_is_submitted() -> None:
    line = CommitLine(0)
    durability = IntervalDurability(next_number=0)
    durability.reserve(b"orders-0", 1000)
    ticket = Ticket(line, 0, 5, -1, False)
    durability.submit(ticket, b"orders-0", 0, 0, memoryview(b"data"))
    assert ticket.done
    assert line.offset == 5


def test_a_ticket_that_waits_has_nothing_to_wait_for() -> None:
    ticket = Ticket(CommitLine(5), 0, 5, -1, True)
    IntervalDurability(next_number=0).wait(ticket)
    assert ticket.done


def test_nothing_is_left_to_commit() -> None:
    durability = IntervalDurability(next_number=0)
    durability.submit(Ticket(CommitLine(0), 0, 5, -1, False), b"orders-0", 0, 0, memoryview(b"data"))
    assert durability.commit() == 0
    assert durability.bytes_in_use == 0


def test_numbers_go_on_counting() -> None:
    durability = IntervalDurability(next_number=7)
    durability.submit(Ticket(CommitLine(0), 0, 5, -1, False), b"orders-0", 0, 0, memoryview(b"data"))
    assert durability.next_number == 8
    assert durability.skip_number() == durability.next_number == 9
