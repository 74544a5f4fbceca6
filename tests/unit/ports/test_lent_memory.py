"""Memory that is lent out again when, and only when, nobody looks at it any more."""

import tracemalloc
from collections.abc import Callable

import pytest

from logbrook.ports.lent_memory import PIECE_BYTES, LentMemory


def test_what_is_taken_has_the_size_that_was_asked_for() -> None:
    memory = LentMemory()
    for size in (1, 4096, PIECE_BYTES // 2, PIECE_BYTES, PIECE_BYTES + 1):
        assert len(memory.take(size)) == size


def test_a_piece_that_nobody_looks_at_is_taken_again() -> None:
    memory = LentMemory()
    first = memory.take(PIECE_BYTES)
    first[0] = 7
    del first
    assert memory.take(PIECE_BYTES // 2)[0] == 7


PARTS: dict[str, Callable[[memoryview], memoryview]] = {
    "the view": lambda view: view,
    "a slice": lambda view: view[10:20],
    "a slice of a slice": lambda view: view[10:][5:6],
    "a view of another kind": lambda view: view.cast("I"),
}


@pytest.mark.parametrize("kept", PARTS)
def test_a_piece_is_not_taken_again_while_anybody_looks_at_any_part_of_it(kept: str) -> None:
    memory = LentMemory()
    view = memory.take(PIECE_BYTES)
    view[:] = b"\x01" * PIECE_BYTES
    held = PARTS[kept](view)
    del view
    others = [memory.take(PIECE_BYTES) for _ in range(50)]
    for other in others:
        other[:] = b"\x02" * PIECE_BYTES
    assert set(held.cast("B") if held.format == "I" else held) == {1}


def test_pieces_that_are_in_use_together_are_apart() -> None:
    memory = LentMemory()
    pieces = [memory.take(PIECE_BYTES) for _ in range(50)]
    for number, piece in enumerate(pieces):
        piece[:] = bytes([number]) * PIECE_BYTES
    assert [set(piece) for piece in pieces] == [{number} for number in range(50)]


def test_trimming_gives_back_what_nobody_looks_at_except_a_little() -> None:
    memory = LentMemory()
    held = memory.take(PIECE_BYTES)
    held[:] = b"\x01" * PIECE_BYTES
    burst = [memory.take(PIECE_BYTES) for _ in range(20)]
    tracemalloc.start()
    try:
        del burst
        more = [memory.take(PIECE_BYTES) for _ in range(31)]
        grown, _ = tracemalloc.get_traced_memory()
        del more
        memory.trim()
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < grown
    others = [memory.take(PIECE_BYTES) for _ in range(50)]
    for other in others:
        other[:] = b"\x02" * PIECE_BYTES
    assert set(held) == {1}
