"""Splitting a byte stream into frames: their boundaries, and the memory of incomplete frames."""

import tracemalloc

import pytest

from logbrook.ports.buffer_pool import BUFFER_BYTES
from logbrook.protocol.errors import FrameTooLargeError, MalformedMessageError
from logbrook.protocol.framing import REQUEST_START_BYTES, FrameReader, ReceiveBuffers

LIMIT = 100 << 20
# Memory that a frame may take before its content arrives.
ANNOUNCED_BYTES_MAX = 16 * 1024


def framed(body: bytes, size: int | None = None) -> bytes:
    return (len(body) if size is None else size).to_bytes(4, "big", signed=True) + body


def start(api_key: int = 3, api_version: int = 1, correlation_id: int = 7) -> bytes:
    return api_key.to_bytes(2, "big") + api_version.to_bytes(2, "big") + correlation_id.to_bytes(4, "big")


def reader(chunk_bytes: int = 64 * 1024, limit: int = LIMIT) -> FrameReader:
    return FrameReader(ReceiveBuffers(chunk_bytes), lambda _: limit)


def feed(reader: FrameReader, data: bytes) -> list[bytes]:
    """Feed `data` to the reader, as much at a time as it has room for."""
    frames: list[bytes] = []
    while data:
        buffer = reader.buffer()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        del buffer
        frames += map(bytes, reader.received(count))
        data = data[count:]
    return frames


def test_several_frames_in_one_chunk_are_separated() -> None:
    bodies = [start() + bytes([n]) * n for n in range(20)]
    frames = reader()
    assert feed(frames, b"".join(map(framed, bodies))) == bodies
    assert not frames.is_within_frame


def test_a_frame_one_byte_at_a_time_is_a_frame() -> None:
    frames = reader()
    body = start() + b"body"
    data = framed(body)
    for byte in data[:-1]:
        assert feed(frames, bytes([byte])) == []
        assert frames.is_within_frame
    assert feed(frames, data[-1:]) == [body]
    assert not frames.is_within_frame


def test_a_frame_larger_than_the_chunk_is_received_where_it_stays() -> None:
    frames = reader(chunk_bytes=64)
    body = start() + bytes(range(256)) * 5000
    assert feed(frames, framed(body) + framed(start())) == [body, start()]


def test_frames_do_not_change_when_more_is_received() -> None:
    frames = FrameReader(ReceiveBuffers(64), lambda _: LIMIT)
    buffer = frames.buffer()
    first = framed(start() + b"first")
    buffer[: len(first)] = first
    (kept,) = frames.received(len(first))
    feed(frames, framed(start() + b"other"))
    assert bytes(kept) == start() + b"first"


def test_readers_share_a_chunk() -> None:
    memory = ReceiveBuffers(256)
    readers = [FrameReader(memory, lambda _: LIMIT) for _ in range(5)]
    bodies = [start() + bytes([n]) * (40 * n) for n in range(5)]
    streams = [framed(body) for body in bodies]
    got: list[list[bytes]] = [[] for _ in readers]
    for position in range(0, max(map(len, streams)), 3):
        for number, frames in enumerate(readers):
            got[number] += feed(frames, streams[number][position : position + 3])
    assert got == [[body] for body in bodies]


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 1, REQUEST_START_BYTES - 1])
def test_a_frame_too_short_for_its_header_is_refused(size: int) -> None:
    with pytest.raises(MalformedMessageError):
        feed(reader(), framed(start(), size))


def test_the_largest_size_of_a_request_depends_on_its_api() -> None:
    asked: list[int] = []

    def size_max_of(api_key: int) -> int:
        asked.append(api_key)
        return 20

    frames = FrameReader(ReceiveBuffers(1024), size_max_of)
    feed(frames, framed(start(1, 2, 3) + bytes(12)))
    with pytest.raises(FrameTooLargeError) as raised:
        feed(frames, framed(start(4, 5, 6) + bytes(13)))
    assert asked == [1, 4]
    assert (raised.value.size, raised.value.size_max) == (21, 20)


def test_an_invalid_request_header_is_rejected_before_memory_is_reserved() -> None:
    class UnknownApiError(Exception):
        pass

    def refuse(api_key: int) -> int:
        raise UnknownApiError

    frames = FrameReader(ReceiveBuffers(1024), refuse)
    with pytest.raises(UnknownApiError):
        feed(frames, framed(start(), LIMIT))
    assert frames.held_bytes == 0


def test_a_size_is_not_judged_before_the_request_has_started() -> None:
    """The first twelve bytes have the size and the type of the request; only these are buffered before."""
    frames = reader(limit=100)
    assert feed(frames, framed(start(), LIMIT)[:11]) == []
    assert frames.is_within_frame
    assert frames.held_bytes == 0
    with pytest.raises(FrameTooLargeError):
        feed(frames, b"\x00")


def test_a_frame_that_is_merely_announced_takes_no_memory() -> None:
    frames = reader()
    feed(frames, framed(start())[:4])
    tracemalloc.start()
    try:
        feed(frames, framed(start(), LIMIT)[4:] + b"x")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_many_announced_frames_use_almost_no_memory() -> None:
    """Connections that announce a large request have sent twelve bytes, and must not block other requests."""
    memory = ReceiveBuffers()
    readers = [FrameReader(memory, lambda _: LIMIT) for _ in range(100)]
    for frames in readers:
        feed(frames, framed(start(), LIMIT))
    assert sum(frames.held_bytes for frames in readers) <= 100 * ANNOUNCED_BYTES_MAX


def traced_bytes() -> int:
    """Memory that the reader and its buffers have allocated; brokers of other tests may run in this process."""
    filters = [tracemalloc.Filter(True, f"*/{name}.py") for name in ("framing", "buffer_pool")]
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(filters).traces)


def test_memory_grows_with_the_received_bytes() -> None:
    frames = reader()
    part = bytes(64 * 1024)
    feed(frames, framed(start(), LIMIT))
    arrived = REQUEST_START_BYTES
    tracemalloc.start()
    try:
        while arrived < 8 << 20:
            feed(frames, part)
            arrived += len(part)
            held = traced_bytes()
            assert frames.held_bytes <= 2 * arrived + ANNOUNCED_BYTES_MAX
            assert held < 2 * arrived + len(part) + 2 * ANNOUNCED_BYTES_MAX + 2 * BUFFER_BYTES
    finally:
        tracemalloc.stop()


def test_a_batch_of_the_usual_largest_size_is_received_in_one_piece_of_memory() -> None:
    frames = reader()
    feed(frames, framed(start() + bytes(64 * 1024), 1_000_000))
    assert frames.held_bytes == 1_000_000


def test_a_frame_of_the_largest_size_has_that_size_when_it_is_complete() -> None:
    frames = reader(limit=3_000_001)
    body = start() + bytes(3_000_001 - REQUEST_START_BYTES)
    (frame,) = feed(frames, framed(body))
    assert frame == body
    assert frames.held_bytes == 0


def test_good_frames_before_a_bad_one_count_for_nothing_when_they_come_with_it() -> None:
    """The connection is closed in any case; this documents what happens to the frames before."""
    with pytest.raises(MalformedMessageError):
        feed(reader(), framed(start()) + framed(start(), -1))
