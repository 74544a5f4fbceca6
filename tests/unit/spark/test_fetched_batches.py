"""Batches that a task must not return: of aborted transactions, and damaged ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbrook.records.batch import BatchHeader, iter_headers
from logbrook.records.builder import seal
from logbrook.spark import fetching
from logbrook.spark.errors import CorruptRecordsError, UnreachableError
from tests.unit.spark.lying_client import ABORT, COMMIT, GOOD, NEXT, Liar, Saying, batch_at, marker, read_from, written

PLAIN_PRODUCER = 99
pytestmark = pytest.mark.usefixtures("own_clients")


def test_aborted_records_are_left_out() -> None:
    batches = [
        written(0, 1, b"a", b"b"),
        written(2, 2, b"c"),
        written(3, PLAIN_PRODUCER, b"d", transactional=False),
        written(4, 1, b"e"),
        marker(5, 1, ABORT),
        written(6, 1, b"f"),
        marker(7, 2, COMMIT),
        written(8, 2, b"g"),
        marker(9, 1, COMMIT),
        marker(10, 2, ABORT),
        batch_at(11, b"h"),
    ]
    liar = Liar(batches, [(1, 0, 5), (2, 8, 10)])
    assert read_from(liar, 12, ("value",), isolation_level="read_committed") == [b"c", b"d", b"f", b"h"]


@given(
    steps=st.lists(
        st.tuples(
            st.integers(1, 3), st.sampled_from(["write", "write", "plain", "commit", "abort"]), st.integers(1, 3)
        ),
        max_size=30,
    ),
    at_once=st.integers(1, 6),
)
def test_only_committed_records_are_read_from_interleaved_transactions(
    steps: list[tuple[int, str, int]], at_once: int
) -> None:
    batches: list[bytes] = []
    aborted: list[tuple[int, int, int]] = []
    committed: list[int] = []
    pending: dict[int, list[int]] = {}
    offset = 0
    for producer, step, size in [*steps, *((number, "abort", 1) for number in (1, 2, 3))]:
        offsets = list(range(offset, offset + size))
        if step == "plain":
            batches.append(batch_at(offset, *[b"p"] * size))
            committed += offsets
        elif step == "write":
            batches.append(written(offset, producer, *[b"t"] * size))
            pending.setdefault(producer, []).extend(offsets)
        else:
            batches.append(marker(offset, producer, COMMIT if step == "commit" else ABORT))
            offsets, ended = [offset], pending.pop(producer, [])
            if step == "commit":
                committed += ended
            elif ended:
                aborted.append((producer, ended[0], offset))
        offset += len(offsets)
    liar = Liar(batches, aborted, at_once)
    fetching._clients.clear()
    assert read_from(liar, offset, isolation_level="read_committed") == sorted(committed)


def damaged(batch: bytes, position: int, by: int = 0xFF) -> bytes:
    changed = bytearray(batch)
    changed[position] ^= by
    return bytes(changed)


@pytest.mark.parametrize(
    ("said", "offset", "reason"),
    [
        (GOOD + damaged(NEXT, len(NEXT) - 1), 1, "CRC32C"),
        (GOOD + damaged(NEXT, 16), 1, "message format v"),
        (GOOD + damaged(NEXT, 8), 0, "batch length -"),
        (damaged(GOOD, 8) + NEXT, 0, "batch length -"),
    ],
)
def test_damaged_bytes_are_an_error_that_names_the_place(said: bytes, offset: int, reason: str) -> None:
    message = rf"^t-0 has a batch at or after offset {offset} that cannot be read: .*{reason}"
    with pytest.raises(CorruptRecordsError, match=message):
        read_from(Saying([], said=said), 2)


def test_records_that_do_not_fit_their_batch_are_an_error_that_names_the_place() -> None:
    header: BatchHeader = next(iter_headers(NEXT))[1]
    changed = bytearray(NEXT)
    # The checksum is valid, and the record count is wrong.
    seal(header._replace(count=2, last_offset_delta=1), changed)
    with pytest.raises(CorruptRecordsError, match=r"^t-0 has a batch at or after offset 1 that cannot be read"):
        read_from(Liar([GOOD, bytes(changed)], at_once=1), 3)


def test_a_marker_that_cannot_be_read_is_an_error_that_names_the_place() -> None:
    broken = damaged(marker(1, 1, ABORT), -1)
    header = next(iter_headers(broken))[1]
    lying = bytearray(broken)
    seal(header._replace(count=7), lying)
    liar = Liar([written(0, 1, b"a"), bytes(lying), NEXT], [(1, 0, 1)])
    with pytest.raises(CorruptRecordsError, match=r"^t-0 has a batch at or after offset 0 that cannot be read"):
        read_from(liar, 2, isolation_level="read_committed")


def test_a_broker_that_repeats_batches_does_not_cause_an_endless_loop() -> None:
    liar = Saying([], said=GOOD)
    with pytest.raises(
        CorruptRecordsError, match="offset 1 that cannot be read: the broker returned batches that end at offset 0"
    ):
        read_from(liar, 2)
    assert liar.asked == [0, 1]


def test_a_broker_that_sends_nothing_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_EMPTY_MAX", 3)
    liar = Saying([], said=GOOD[:70])
    with pytest.raises(UnreachableError, match="t-0 has nothing at offset 0, though it should go on to 2"):
        read_from(liar, 2)
    assert len(liar.asked) == 4
