"""Records in a file descriptor, with any delimiter, however the input is cut into reads."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from logbrook.cli import line_input
from logbrook.cli.failures import HeldInterrupt
from logbrook.cli.line_input import LineInput


@contextmanager
def pipe_with(data: bytes) -> Iterator[int]:
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    try:
        yield reading
    finally:
        os.close(reading)


def lines_of(data: bytes, delimiter: bytes | None) -> list[bytes]:
    with pipe_with(data) as descriptor, HeldInterrupt() as held:
        source = LineInput(descriptor, lambda _: None, held, delimiter)
        return [line for run in source.runs() for line in run]


@pytest.mark.parametrize("read_bytes", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize("delimiter", [b"\n", b"ab", b"aab", b"---"])
@pytest.mark.parametrize(
    "data", [b"", b"\n", b"x\ny", b"aabaabab", b"xaaby aa b\n", b"1---2----3---", b"a" * 20 + b"b" + b"a" * 7]
)
def test_records_are_those_of_a_split(
    monkeypatch: pytest.MonkeyPatch, data: bytes, delimiter: bytes, read_bytes: int
) -> None:
    monkeypatch.setattr(line_input, "_READ_BYTES", read_bytes)
    expected = data.split(delimiter)
    assert lines_of(data, delimiter) == (expected if expected[-1] else expected[:-1])


@pytest.mark.parametrize("data", [b"", b"a\nb\n", b"\n"])
def test_without_a_delimiter_the_input_is_one_record(data: bytes) -> None:
    assert lines_of(data, None) == [data]
