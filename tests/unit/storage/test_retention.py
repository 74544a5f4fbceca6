"""Retention removes whole segments, oldest first, below the high watermark and the recovery point."""

from collections.abc import Callable

import pytest

from logbrook.config import CleanupPolicy
from logbrook.model.identifiers import Offset
from logbrook.storage.compaction import compact
from logbrook.storage.errors import OffsetOutOfRangeError
from logbrook.storage.retention import apply_retention
from tests.unit.storage.kit import BATCH_BYTES, NOW_MS, Store, batch, numbered, offsets_of, values_of

HOUR_MS = 3_600_000


def filled(new_store: Callable[..., Store], **settings: object) -> Store:
    """Five closed segments of two batches each and one batch in the active one, all synced."""
    store = new_store(**({"segment_bytes": 2 * BATCH_BYTES, "file_delete_delay_ms": 1000} | settings))
    store.write(*numbered(11))
    store.directory.checkpoint()
    return store


def test_segments_whose_newest_record_is_too_old_are_removed(new_store: Callable[..., Store]) -> None:
    store = new_store(segment_bytes=2 * BATCH_BYTES, retention_ms=HOUR_MS)
    store.write(*(batch(b"value", timestamps=[NOW_MS + number * HOUR_MS]) for number in range(5)))
    store.directory.checkpoint()
    done = apply_retention(store.log, NOW_MS + 3 * HOUR_MS)
    assert done.removed == ["orders-0/00000000000000000000.log"]
    assert store.log.log_start_offset == 2
    assert offsets_of(store.read(2)) == [2, 3, 4]


def test_an_unlimited_retention_keeps_everything(new_store: Callable[..., Store]) -> None:
    store = filled(new_store, retention_ms=-1, retention_bytes=-1)
    assert apply_retention(store.log, NOW_MS + 10_000 * HOUR_MS).removed == []
    assert store.log.log_start_offset == 0


def test_an_empty_cleanup_policy_keeps_everything(new_store: Callable[..., Store]) -> None:
    store = filled(new_store, cleanup_policy=set(), retention_ms=1, retention_bytes=1)
    assert apply_retention(store.log, NOW_MS + HOUR_MS).removed == []
    assert compact(store.log, NOW_MS + HOUR_MS, force=True) is None
    # Only what a client deletes is removed.
    store.log.delete_before(Offset(4))
    assert len(apply_retention(store.log, NOW_MS + HOUR_MS).removed) == 2


def test_records_without_a_timestamp_have_no_age(new_store: Callable[..., Store]) -> None:
    store = new_store(segment_bytes=2 * BATCH_BYTES, retention_ms=1, segment_ms=1 << 60)
    store.write(*(batch(b"value", timestamps=[-1]) for _ in range(5)))
    store.directory.checkpoint()
    assert apply_retention(store.log, NOW_MS * 2).removed == []


def test_the_oldest_segments_are_removed_while_the_rest_reaches_retention_bytes(
    new_store: Callable[..., Store],
) -> None:
    store = filled(new_store, retention_bytes=5 * BATCH_BYTES)
    done = apply_retention(store.log, NOW_MS)
    assert done.bytes_removed == 6 * BATCH_BYTES
    assert store.log.size == 5 * BATCH_BYTES
    assert store.log.log_start_offset == 6


def test_an_expired_active_segment_is_rolled_and_deleted_once_it_is_synced(new_store: Callable[..., Store]) -> None:
    store = filled(new_store, retention_ms=HOUR_MS)
    later = NOW_MS + 2 * HOUR_MS
    assert apply_retention(store.log, later).rolled
    store.directory.checkpoint()
    apply_retention(store.log, later)
    assert store.log.log_start_offset == store.log.log_end_offset == 11
    assert store.write(batch()).base_offset == 11


def test_an_expired_active_segment_is_rolled_without_an_append(new_store: Callable[..., Store]) -> None:
    store = filled(new_store, segment_ms=HOUR_MS, retention_ms=-1)
    assert not apply_retention(store.log, NOW_MS + HOUR_MS - 1).rolled
    assert apply_retention(store.log, NOW_MS + HOUR_MS).rolled
    assert not apply_retention(store.log, NOW_MS + 9 * HOUR_MS).rolled, "an empty segment has no age"


def test_retention_removes_nothing_above_the_high_watermark(new_store: Callable[..., Store]) -> None:
    store = new_store(segment_bytes=2 * BATCH_BYTES, retention_bytes=0)
    store.write(*numbered(3))
    for data in numbered(4):
        store.append(data)
    store.directory.checkpoint()
    apply_retention(store.log, NOW_MS)
    assert store.log.high_watermark == 3
    assert store.log.log_start_offset == 2


def test_nothing_that_is_not_synced_yet_is_removed(new_store: Callable[..., Store]) -> None:
    store = new_store(segment_bytes=2 * BATCH_BYTES, retention_bytes=0)
    store.write(*numbered(7))
    assert apply_retention(store.log, NOW_MS).removed == []
    store.directory.checkpoint()
    assert len(apply_retention(store.log, NOW_MS).removed) == 3


def test_a_compacted_topic_without_delete_keeps_expired_segments(new_store: Callable[..., Store]) -> None:
    store = filled(new_store, cleanup_policy={CleanupPolicy.COMPACT}, retention_ms=1, retention_bytes=0)
    assert apply_retention(store.log, NOW_MS + HOUR_MS).removed == []


def test_segments_below_the_log_start_are_removed_under_every_policy(new_store: Callable[..., Store]) -> None:
    store = filled(new_store, cleanup_policy={CleanupPolicy.COMPACT})
    store.log.delete_before(Offset(5))
    assert len(apply_retention(store.log, NOW_MS).removed) == 2
    assert store.log.log_start_offset == 5
    assert values_of(store.read(5))[0] == b"00005"[:5]
    with pytest.raises(OffsetOutOfRangeError):
        store.read(4)


def test_one_step_removes_at_most_the_given_number_of_segments(new_store: Callable[..., Store]) -> None:
    store = filled(new_store, retention_bytes=0)
    assert [len(apply_retention(store.log, NOW_MS, segments_max=2).removed) for _ in range(4)] == [2, 2, 1, 0]


def test_files_stay_for_the_delay_and_a_reader_of_them_finishes(new_store: Callable[..., Store]) -> None:
    store = filled(new_store, retention_bytes=0)
    reader = store.read(0)
    apply_retention(store.log, NOW_MS)
    assert store.directory.remove_files(NOW_MS + 999) == []
    assert len(store.directory.remove_files(NOW_MS + 1000, files_max=100)) == 10
    assert values_of(reader) == [b"%05d" % number for number in range(11)]
    assert [name for name in store.files.list("orders-0") if "deleted" in name] == []


def test_the_log_start_survives_a_kill(new_store: Callable[..., Store]) -> None:
    store = filled(new_store, retention_bytes=0)
    apply_retention(store.log, NOW_MS)
    again = store.killed()
    assert (again.log.log_start_offset, again.log.log_end_offset) == (10, 11)
    assert len(again.directory.remove_files(NOW_MS, files_max=100)) == 10, "the retired files are found by their names"
