"""A poison batch is replaced by an empty one at the same offsets, and nothing else changes."""

from collections.abc import Callable

import pytest

from logbrook.model.identifiers import Offset
from logbrook.records.batch import Codec, renew_crc
from logbrook.records.errors import RecordsError
from logbrook.storage.batch_skip import find_skippable, skip_batch
from logbrook.storage.errors import CorruptLogError, OffsetOutOfRangeError, UnskippableBatchError
from logbrook.storage.verification import verify
from logbrook.testing import RecordingFiles
from logbrook.testing.crash_states import crash_states
from tests.unit.storage.kit import BATCH_BYTES, PARTITION, Store, batch, content, flip, offsets_of, records_of

NewStore = Callable[..., Store]


def poison(producer: tuple[int, int, int] | None = None) -> bytearray:
    """Return a batch of three records whose second cannot be decoded."""
    data = batch(b"a", b"b" * 40, b"c", codec=Codec.NONE, producer=producer)
    position = bytes(data).index(b"b" * 40)
    data[position - 1] = 0x7E
    renew_crc(memoryview(data), 0, len(data))
    return data


def poisoned(new_store: NewStore, **settings: object) -> Store:
    """Return a log with a batch at offsets 0, a poison batch at 1 to 3 and batches at 4, 5 and 6, not synced."""
    store = new_store(**settings)
    store.write(batch(b"0"), poison((7, 0, 0)), batch(b"4"), batch(b"5"), batch(b"6"))
    return store


# In the active segment, and in one that is closed and has others after it.
@pytest.mark.parametrize("segment_bytes", [1 << 20, 3 * BATCH_BYTES])
@pytest.mark.parametrize("offset", [1, 2, 3])
def test_readers_continue_after_the_batch(new_store: NewStore, segment_bytes: int, offset: int) -> None:
    store = poisoned(new_store, segment_bytes=segment_bytes)
    with pytest.raises(RecordsError):
        records_of(store.read(0))
    stored = find_skippable(store.log, Offset(offset))
    assert (stored.header.base_offset, stored.header.last_offset) == (1, 3)
    assert stored.fault is not None
    skip_batch(store.directory, PARTITION, Offset(offset))
    for reader in (store, store.killed(), store.reopened()):
        assert [record.offset for record in records_of(reader.read(0))] == [0, 4, 5, 6]
        assert reader.log.log_end_offset == 7
        verify(reader.log)
        reader.log.validate()


def test_the_original_batch_is_kept(new_store: NewStore) -> None:
    store = poisoned(new_store)
    stored = find_skippable(store.log, Offset(1))
    kept_aside = skip_batch(store.directory, PARTITION, Offset(1))
    assert kept_aside == "orders-0/00000000000000000001.skipped"
    assert content(store.files, kept_aside) == stored.data
    assert content(store.reopened().files, kept_aside) == stored.data


def test_the_producer_of_the_batch_is_still_known_when_its_state_is_rebuilt(new_store: NewStore) -> None:
    store = poisoned(new_store)
    skip_batch(store.directory, PARTITION, Offset(1))
    store.log.rebuild_producers()
    assert store.append(poison((7, 0, 0))).duplicate
    assert store.write(batch(b"7", producer=(7, 0, 3))).base_offset == 7


def test_a_batch_that_can_be_decoded_may_be_skipped_too(new_store: NewStore) -> None:
    store = poisoned(new_store)
    assert find_skippable(store.log, Offset(0)).fault is None
    skip_batch(store.directory, PARTITION, Offset(0))
    assert offsets_of(store.read(4)) == [4, 5, 6]


def test_offsets_without_a_batch_to_skip_are_refused(new_store: NewStore) -> None:
    store = poisoned(new_store)
    for offset in (-1, 7):
        with pytest.raises(OffsetOutOfRangeError):
            skip_batch(store.directory, PARTITION, Offset(offset))
    skip_batch(store.directory, PARTITION, Offset(1))
    with pytest.raises(UnskippableBatchError, match="empty already"):
        skip_batch(store.directory, PARTITION, Offset(2))


def test_a_marker_is_not_skipped(new_store: NewStore) -> None:
    store = new_store()
    store.write(batch(b"x", producer=(7, 0, 0), transactional=True))
    store.end(7, commits=True)
    with pytest.raises(UnskippableBatchError, match="marker"):
        skip_batch(store.directory, PARTITION, Offset(1))


def test_a_damaged_batch_is_left_to_the_repair(new_store: NewStore) -> None:
    store = poisoned(new_store, segment_bytes=3 * BATCH_BYTES)
    store.directory.checkpoint()
    flip(store.files, store.log.segments[0].path, BATCH_BYTES + 70)
    with pytest.raises((UnskippableBatchError, CorruptLogError)):
        skip_batch(store.directory, PARTITION, Offset(1))


@pytest.mark.parametrize("segment_bytes", [1 << 20, 3 * BATCH_BYTES])
def test_a_power_loss_at_any_time_leaves_the_batch_or_an_empty_one(
    new_store: NewStore, open_store: NewStore, segment_bytes: int
) -> None:
    disk = RecordingFiles()
    store = poisoned(new_store, on=disk, segment_bytes=segment_bytes)
    disk.mark("written")
    skip_batch(store.directory, PARTITION, Offset(1))
    disk.mark("skipped")
    counts = set()
    for state in crash_states(disk.journal):
        if "written" not in state.marks:
            continue
        recovered = open_store(state.files, segment_bytes=segment_bytes).log
        assert (recovered.corruption, recovered.log_end_offset) == (None, 7), str(state)
        headers = [batch.header for segment in recovered.segments for batch in segment.batches()]
        assert [header.base_offset for header in headers] == [0, 1, 4, 5, 6], str(state)
        counts.add(headers[1].count)
        assert headers[1].count == 0 or "skipped" not in state.marks, str(state)
    assert counts == {0, 3}
