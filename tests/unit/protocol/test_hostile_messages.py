"""The decoder reads any bytes or raises MalformedMessageError, with memory in proportion to the size of the frame."""

import tracemalloc
from collections.abc import Iterator
from random import Random
from typing import TypeVar

import pytest

from logbrook.protocol.decoding import decode
from logbrook.protocol.encoding import uvarint
from logbrook.protocol.errors import MalformedMessageError
from logbrook.protocol.reader import ELEMENTS_MAX, Reader
from logbrook.protocol.schema import ApiMessage, Field, Message
from logbrook.server.handlers import all_apis
from tests.unit.protocol.every_message import CASES, Case, encoded
from tests.unit.protocol.hostile_bytes import mutated, with_hostile_lengths
from tests.unit.protocol.samples import Sampler

M = TypeVar("M", bound=Message)

MUTATIONS = 40
# The largest element is a group member with its two assignments, which our client reads.
ELEMENT_BYTES_MAX = 400
# Some versions are only sent between brokers; this broker does not decode them.
SERVED = {api.request: api.versions.last for api in all_apis()}
LATEST = [case for case in CASES if case.version == SERVED.get(case.message, case.message.VERSIONS.last)]


def full_message(case: Case) -> ApiMessage:
    return Sampler(str(case), full=True).message(case.message, case.version)


def read(case: Case, data: bytes) -> ApiMessage | None:
    """Return the message, or None if the decoder raises MalformedMessageError. Any other error names the case."""
    try:
        return decode(case.message, case.version, Reader(memoryview(data)))
    except MalformedMessageError:
        return None
    except Exception as error:
        error.add_note(f"{case}: {data.hex()}")
        raise


def test_a_message_cut_off_anywhere_is_refused() -> None:
    for case in CASES:
        data = encoded(full_message(case), case.version)
        decoded_prefixes = [end for end in range(len(data)) if read(case, data[:end]) is not None]
        assert decoded_prefixes == [], f"{case}: a prefix of {len(data)} bytes is decoded"


def test_hostile_lengths_and_counts_are_refused_or_harmless() -> None:
    for case in CASES:
        message = full_message(case)
        tried = 0
        for data in with_hostile_lengths(message, case.version):
            read(case, data)
            tried += 1
        assert tried or not encoded(message, case.version), case


def test_mutated_messages_are_refused_or_harmless() -> None:
    for case in CASES:
        random = Random(str(case))
        data = encoded(full_message(case), case.version)
        for _ in range(MUTATIONS):
            read(case, mutated(data, random))


def array_paths(message: type[Message], version: int, above: tuple[Field, ...] = ()) -> Iterator[tuple[Field, ...]]:
    """Yield the path to each array of a message, through the fields that contain it."""
    for field in message.FIELDS:
        if version in field.versions:
            if field.array:
                yield (*above, field)
            if not isinstance(field.kind, str):
                yield from array_paths(field.kind, version, (*above, field))


def with_array(message: type[M], path: tuple[Field, ...], count: int) -> M:
    """A message with `count` minimal elements in the array at the end of `path`, and nothing else."""
    made = message()
    for member in message.FIELDS:
        if not isinstance(member.kind, str) and not member.array and member.nullable is None and member.tag is None:
            setattr(made, member.name, with_array(member.kind, (), 0))
    if not path:
        return made
    field, *rest = path
    if isinstance(field.kind, str):
        setattr(made, field.name, ["" if field.kind == "string" else 0] * count)
        return made
    inner = [with_array(field.kind, tuple(rest), count) for _ in range(1 if rest else count)]
    setattr(made, field.name, inner if field.array else inner[0])
    return made


def peak_is_below(bound: int, case: Case, data: bytes) -> bool:
    """Decode `data`, and return True if the memory allocated meanwhile stays below `bound` bytes.

    Up to three attempts: brokers of other tests may allocate on their threads at the same time.
    """
    for _ in range(3):
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        read(case, data)
        if tracemalloc.get_traced_memory()[1] - before < bound:
            return True
    return False


def test_an_element_uses_little_memory_so_that_the_number_of_elements_bounds_it() -> None:
    count = 200
    tracemalloc.start()
    try:
        for case in LATEST:
            for path in array_paths(case.message, case.version):
                data = encoded(with_array(case.message, path, count), case.version)
                # The first message of a type compiles its decoder, which does not count.
                assert read(case, data) is not None
                assert peak_is_below(ELEMENT_BYTES_MAX * count, case, data), (case, path)
    finally:
        tracemalloc.stop()


def test_more_elements_than_a_message_may_have_are_refused_before_they_are_made() -> None:
    tracemalloc.start()
    try:
        for case in LATEST:
            for path in array_paths(case.message, case.version):
                if path[0].tag is None and len(path) == 1:
                    frame = announcing(case, path, ELEMENTS_MAX + 1)
                    read(case, frame[:1000])
                    assert read(case, frame) is None, (case, path)
                    assert peak_is_below(10_000, case, frame), (case, path)
    finally:
        tracemalloc.stop()


def announcing(case: Case, path: tuple[Field, ...], count: int) -> bytes:
    """The message with `count` in front of its array, followed by enough bytes for that many elements."""
    empty, single = (encoded(with_array(case.message, path, elements), case.version) for elements in (0, 1))
    position = next(place for place, (a, b) in enumerate(zip(empty, single, strict=False)) if a != b)
    if case.is_flexible:
        start, claimed = position, uvarint(count + 1)
    else:
        start, claimed = position - 3, count.to_bytes(4, "big")
    return single[:start] + claimed + bytes(64 * count)


@pytest.mark.parametrize("filler", [b"\x00", b"\x01", b"\x02", b"\x7f", b"\xff"], ids=bytes.hex)
def test_a_frame_of_one_byte_repeated_is_refused_or_uses_little_memory(filler: bytes) -> None:
    size = 64 * 1024
    tracemalloc.start()
    try:
        for case in CASES:
            read(case, filler * 64)
            assert peak_is_below(4 * size, case, filler * size), case
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "claimed", [b"\x01", b"\xff\xff\xff\xff\x07", b"\x01\x05\xff\xff\xff\xff\x07", b"\x01\xff\xff\xff\xff\x7f\x00"]
)
def test_announced_tagged_fields_that_are_missing_are_refused(claimed: bytes) -> None:
    for case in (case for case in CASES if case.is_flexible):
        data = encoded(case.message(), case.version)
        assert data[-1:] == b"\x00", case
        assert read(case, data[:-1] + claimed) is None, case
