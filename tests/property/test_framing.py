"""Frames do not depend on how a byte stream is split into reads."""

from hypothesis import given, settings
from hypothesis import strategies as st

from logbrook.protocol.errors import FrameTooLargeError, MalformedMessageError
from logbrook.protocol.framing import FrameReader, ReceiveBuffers

LIMIT = 2000
# Bodies are the bytes after the first eight of a request.
bodies = st.lists(st.binary(max_size=300) | st.integers(300, LIMIT - 8).map(bytes), max_size=12)
splits = st.lists(st.integers(1, 400), min_size=1, max_size=50)


def frame(body: bytes, correlation_id: int) -> bytes:
    content = b"\x00\x03\x00\x01" + correlation_id.to_bytes(4, "big") + body
    return len(content).to_bytes(4, "big") + content


def feed(reader: FrameReader, data: memoryview) -> list[bytes]:
    frames: list[bytes] = []
    while data:
        buffer = reader.buffer()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        frames += map(bytes, reader.received(count))
        data = data[count:]
    return frames


def parts(data: bytes, sizes: list[int]) -> list[memoryview]:
    view, cut = memoryview(data), []
    turn = 0
    while view:
        size = sizes[turn % len(sizes)]
        cut.append(view[:size])
        view = view[size:]
        turn += 1
    return cut


@settings(max_examples=150)
@given(bodies, splits, st.integers(32, 700))
def test_any_splitting_of_the_stream_gives_the_same_frames(sent: list[bytes], sizes: list[int], chunk: int) -> None:
    reader = FrameReader(ReceiveBuffers(chunk), lambda _: LIMIT)
    stream = b"".join(frame(body, number) for number, body in enumerate(sent))
    received = [frame for part in parts(stream, sizes) for frame in feed(reader, part)]
    assert [frame[8:] for frame in received] == sent
    assert [int.from_bytes(frame[4:8], "big") for frame in received] == list(range(len(sent)))
    assert not reader.is_within_frame
    assert reader.held_bytes == 0


@settings(max_examples=100)
@given(st.lists(st.tuples(bodies, splits), min_size=2, max_size=5), st.integers(32, 700), st.randoms())
def test_readers_of_one_chunk_are_independent(
    streams: list[tuple[list[bytes], list[int]]], chunk_bytes: int, random: object
) -> None:
    memory = ReceiveBuffers(chunk_bytes)
    readers = [FrameReader(memory, lambda _: LIMIT) for _ in streams]
    waiting = [
        parts(b"".join(frame(body, number) for number, body in enumerate(sent)), sizes) for sent, sizes in streams
    ]
    got: list[list[bytes]] = [[] for _ in streams]
    while any(waiting):
        turn = random.choice([n for n, parts_left in enumerate(waiting) if parts_left])  # type: ignore[attr-defined]
        got[turn] += feed(readers[turn], waiting[turn].pop(0))
    assert [[frame[8:] for frame in frames] for frames in got] == [sent for sent, _ in streams]


@settings(max_examples=300)
@given(st.binary(max_size=400), splits)
def test_random_bytes_are_refused_or_incomplete_and_use_only_their_size(data: bytes, sizes: list[int]) -> None:
    asked: list[int] = []

    def size_max_of(api_key: int) -> int:
        asked.append(api_key)
        return LIMIT

    reader = FrameReader(ReceiveBuffers(64), size_max_of)
    try:
        for part in parts(data, sizes):
            feed(reader, part)
    except (FrameTooLargeError, MalformedMessageError):
        pass
    assert reader.held_bytes <= LIMIT
    assert bool(reader.held_bytes) <= bool(asked)
