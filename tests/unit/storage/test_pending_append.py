"""A pending append: its offsets, its completion and its callbacks."""

import threading
import traceback

import pytest

from logbrook.model.identifiers import Offset
from logbrook.storage.errors import DiskFullError
from logbrook.storage.pending_append import CommittedOffset, PendingAppend


def append_on(committed: CommittedOffset, base_offset: int = 10, next_offset: int = 15) -> PendingAppend:
    return PendingAppend(committed, Offset(base_offset), Offset(next_offset), -1, False)


def test_a_new_append_has_its_offsets_and_is_not_done() -> None:
    append = append_on(CommittedOffset(Offset(10)))
    assert (append.base_offset, append.next_offset) == (10, 15)
    assert not append.done
    with pytest.raises(AssertionError, match="not done"):
        append.result()


def test_completing_moves_the_committed_offset_to_the_end_of_the_append() -> None:
    committed = CommittedOffset(Offset(10))
    append_on(committed).complete()
    assert committed.offset == 15


def test_the_committed_offset_never_decreases() -> None:
    committed = CommittedOffset(Offset(99))
    append_on(committed).complete()
    assert committed.offset == 99


def test_a_failure_leaves_the_committed_offset_and_is_raised_by_the_result() -> None:
    committed = CommittedOffset(Offset(10))
    append = append_on(committed)
    error = DiskFullError("a", 1)
    append.complete(error)
    assert committed.offset == 10
    assert append.done
    with pytest.raises(DiskFullError) as raised:
        append.result()
    assert raised.value is error


def test_an_error_that_many_appends_share_does_not_gather_their_frames() -> None:
    error = DiskFullError("a", 1)
    lengths: list[int] = []
    for _ in range(4):
        append = append_on(CommittedOffset(Offset(10)))
        append.complete(error)
        with pytest.raises(DiskFullError):
            append.result()
        lengths.append(len(list(traceback.walk_tb(error.__traceback__))))
    assert len(set(lengths)) == 1


def test_the_result_of_a_done_append_is_the_append() -> None:
    append = append_on(CommittedOffset(Offset(10)))
    append.complete()
    assert append.result() is append


def test_callbacks_added_before_completion_are_called_once() -> None:
    called: list[PendingAppend] = []
    append = append_on(CommittedOffset(Offset(10)))
    append.add_done_callback(called.append)
    append.add_done_callback(called.append)
    assert called == []
    append.complete()
    assert called == [append, append]


def test_callbacks_added_after_completion_are_called_at_once() -> None:
    called: list[PendingAppend] = []
    append = append_on(CommittedOffset(Offset(10)))
    append.complete()
    append.add_done_callback(called.append)
    assert called == [append]


def test_a_callback_sees_the_committed_offset_moved() -> None:
    committed = CommittedOffset(Offset(10))
    seen: list[int] = []
    append = append_on(committed)
    append.add_done_callback(lambda _append: seen.append(committed.offset))
    append.complete()
    assert seen == [15]


def test_a_callback_is_called_exactly_once_in_any_order_of_threads() -> None:
    rounds = 500
    start = threading.Barrier(2)
    appends = [append_on(CommittedOffset(Offset(10))) for _ in range(rounds)]
    calls = [0] * rounds

    def count(number: int) -> None:
        calls[number] += 1

    def complete_all() -> None:
        for append in appends:
            start.wait()
            append.complete()

    completer = threading.Thread(target=complete_all)
    completer.start()
    for number, append in enumerate(appends):
        start.wait()
        append.add_done_callback(lambda _append, number=number: count(number))  # type: ignore[misc]
    completer.join()
    assert calls == [1] * rounds
