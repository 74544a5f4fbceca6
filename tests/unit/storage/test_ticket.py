"""What an append gives back."""

import threading
import traceback

import pytest

from logbrook.storage.errors import DiskFullError
from logbrook.storage.ticket import CommitLine, Ticket


def ticket_on(line: CommitLine, base_offset: int = 10, next_offset: int = 15) -> Ticket:
    return Ticket(line, base_offset, next_offset, -1, False)


def test_a_new_ticket_has_its_offsets_and_is_not_done() -> None:
    ticket = ticket_on(CommitLine(10))
    assert (ticket.base_offset, ticket.next_offset) == (10, 15)
    assert not ticket.done
    with pytest.raises(AssertionError, match="not done"):
        ticket.result()


def test_completing_moves_the_commit_line_to_the_end_of_the_append() -> None:
    line = CommitLine(10)
    ticket_on(line).complete()
    assert line.offset == 15


def test_the_commit_line_never_goes_back() -> None:
    line = CommitLine(99)
    ticket_on(line).complete()
    assert line.offset == 99


def test_a_failure_moves_no_line_and_is_raised_by_the_result() -> None:
    line = CommitLine(10)
    ticket = ticket_on(line)
    error = DiskFullError("a", 1)
    ticket.complete(error)
    assert line.offset == 10
    assert ticket.done
    with pytest.raises(DiskFullError) as raised:
        ticket.result()
    assert raised.value is error


def test_an_error_that_many_tickets_share_does_not_gather_their_frames() -> None:
    error = DiskFullError("a", 1)
    lengths: list[int] = []
    for _ in range(4):
        ticket = ticket_on(CommitLine(10))
        ticket.complete(error)
        with pytest.raises(DiskFullError):
            ticket.result()
        lengths.append(len(list(traceback.walk_tb(error.__traceback__))))
    assert len(set(lengths)) == 1


def test_the_result_of_a_done_ticket_is_the_ticket() -> None:
    ticket = ticket_on(CommitLine(10))
    ticket.complete()
    assert ticket.result() is ticket


def test_callbacks_that_were_added_before_are_called_once_with_the_ticket() -> None:
    called: list[Ticket] = []
    ticket = ticket_on(CommitLine(10))
    ticket.add_done_callback(called.append)
    ticket.add_done_callback(called.append)
    assert called == []
    ticket.complete()
    assert called == [ticket, ticket]


def test_callbacks_that_are_added_after_are_called_at_once() -> None:
    called: list[Ticket] = []
    ticket = ticket_on(CommitLine(10))
    ticket.complete()
    ticket.add_done_callback(called.append)
    assert called == [ticket]


def test_a_callback_sees_the_line_moved() -> None:
    line = CommitLine(10)
    seen: list[int] = []
    ticket = ticket_on(line)
    ticket.add_done_callback(lambda _ticket: seen.append(line.offset))
    ticket.complete()
    assert seen == [15]


def test_a_callback_is_called_exactly_once_whichever_thread_comes_first() -> None:
    rounds = 500
    start = threading.Barrier(2)
    tickets = [ticket_on(CommitLine(10)) for _ in range(rounds)]
    calls = [0] * rounds

    def count(number: int) -> None:
        calls[number] += 1

    def complete_all() -> None:
        for ticket in tickets:
            start.wait()
            ticket.complete()

    completer = threading.Thread(target=complete_all)
    completer.start()
    for number, ticket in enumerate(tickets):
        start.wait()
        ticket.add_done_callback(lambda _ticket, number=number: count(number))  # type: ignore[misc]
    completer.join()
    assert calls == [1] * rounds
