"""Buffers are reused when, and only when, the last view of them is gone."""

import tracemalloc
from collections.abc import Callable

import pytest

from logbrook.ports.buffer_pool import BUFFER_BYTES, LARGE_BUFFER_BYTES, BufferPool


def test_a_buffer_has_the_requested_size() -> None:
    pool = BufferPool()
    for size in (
        1,
        4096,
        BUFFER_BYTES // 2,
        BUFFER_BYTES,
        BUFFER_BYTES + 1,
        LARGE_BUFFER_BYTES,
        LARGE_BUFFER_BYTES + 1,
    ):
        assert len(pool.take(size)) == len(pool.take_large(size)) == size


def test_a_buffer_without_views_is_reused() -> None:
    pool = BufferPool()
    first = pool.take(BUFFER_BYTES)
    first[0] = 7
    del first
    assert pool.take(BUFFER_BYTES // 2)[0] == 7


def test_large_buffers_are_reused_too() -> None:
    pool = BufferPool()
    first = pool.take_large(BUFFER_BYTES + 1)
    first[0] = 7
    del first
    assert pool.take_large(LARGE_BUFFER_BYTES)[0] == 7


PARTS: dict[str, Callable[[memoryview], memoryview]] = {
    "the view": lambda view: view,
    "a slice": lambda view: view[10:20],
    "a slice of a slice": lambda view: view[10:][5:6],
    "a view of another kind": lambda view: view.cast("I"),
}


@pytest.mark.parametrize("kept", PARTS)
def test_a_buffer_is_not_reused_while_any_view_of_it_exists(kept: str) -> None:
    pool = BufferPool()
    view = pool.take(BUFFER_BYTES)
    view[:] = b"\x01" * BUFFER_BYTES
    held = PARTS[kept](view)
    del view
    others = [pool.take(BUFFER_BYTES) for _ in range(50)]
    for buffer in others:
        buffer[:] = b"\x02" * BUFFER_BYTES
    assert set(held.cast("B") if held.format == "I" else held) == {1}


def test_buffers_in_use_at_the_same_time_do_not_overlap() -> None:
    pool = BufferPool()
    pieces = [pool.take(BUFFER_BYTES) for _ in range(50)]
    for number, piece in enumerate(pieces):
        piece[:] = bytes([number]) * BUFFER_BYTES
    assert [set(piece) for piece in pieces] == [{number} for number in range(50)]


def test_trimming_frees_unused_buffers_except_a_few() -> None:
    pool = BufferPool()
    held = pool.take(BUFFER_BYTES)
    held[:] = b"\x01" * BUFFER_BYTES
    burst = [pool.take(BUFFER_BYTES) for _ in range(20)]
    tracemalloc.start()
    try:
        del burst
        more = [pool.take(BUFFER_BYTES) for _ in range(31)]
        grown, _ = tracemalloc.get_traced_memory()
        del more
        pool.trim()
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < grown
    others = [pool.take(BUFFER_BYTES) for _ in range(50)]
    for buffer in others:
        buffer[:] = b"\x02" * BUFFER_BYTES
    assert set(held) == {1}
