"""Compaction keeps the newest record of every key at its offset, and changes nothing else of the log."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from logbrook.config import CleanupPolicy
from logbrook.model.identifiers import Offset, ProducerEpoch, ProducerId
from logbrook.records.batch import Codec, iter_headers, renew_crc
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.storage.batch_set import AppendOrigin
from logbrook.storage.compaction import compact, plan_compaction
from logbrook.storage.compaction_state import OffsetMap
from logbrook.storage.errors import CorruptLogError, LogModifiedError, ReadFailedError
from logbrook.storage.retention import apply_retention
from logbrook.storage.truncation import truncate
from logbrook.testing import FaultyFiles, MemoryFiles
from tests.unit.storage.kit import NOW_MS, PARTITION, Store, bases_of, flip, records_of

DAY_MS = 86_400_000
NewStore = Callable[..., Store]


def keyed(*pairs: tuple[str, str | None], **arguments: object) -> bytearray:
    records = [Record(key.encode(), None if value is None else value.encode(), (), NOW_MS) for key, value in pairs]
    return build_batch(records, **arguments)  # type: ignore[arg-type]


def compacted(new_store: NewStore, *batches: bytearray, **settings: object) -> Store:
    """A compacted topic with a closed segment per batch, all synced, and an empty active segment."""
    defaults = {"cleanup_policy": {CleanupPolicy.COMPACT}, "segment_bytes": 1, "file_delete_delay_ms": 0}
    store = new_store(**(defaults | settings))
    for data in batches:
        store.write(data)
    store.log.roll()
    store.directory.checkpoint()
    return store


def pairs_of(store: Store) -> list[tuple[int, str, str | None]]:
    slices = store.read(store.log.log_start_offset)
    return [
        (record.offset, (record.key or b"-").decode(), None if record.value is None else record.value.decode())
        for record in records_of(slices)
    ]


@pytest.mark.parametrize("codec", Codec)
def test_the_newest_record_of_each_key_stays_at_its_offset(new_store: NewStore, codec: Codec) -> None:
    store = compacted(
        new_store,
        keyed(("a", "1"), ("b", "1"), codec=codec),
        keyed(("a", "2"), ("c", "1"), codec=codec),
        keyed(("b", "2"), codec=codec),
    )
    done = compact(store.log, NOW_MS + 1)
    assert done is not None
    assert pairs_of(store) == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2")]
    assert done.bytes_written < done.bytes_read
    assert done.cleaned_offset == 5


def test_a_batch_that_loses_records_keeps_its_base_offset_and_last_offset(new_store: NewStore) -> None:
    store = compacted(new_store, keyed(("a", "1"), ("b", "1"), ("c", "1")), keyed(("a", "2"), ("c", "2")))
    compact(store.log, NOW_MS + 1)
    headers = [header for part in store.read(0) for _, header in iter_headers(part.data)]
    assert [(header.base_offset, header.last_offset, header.count) for header in headers] == [(0, 2, 1), (3, 4, 2)]


def test_a_batch_in_which_nothing_is_superseded_keeps_its_bytes(new_store: NewStore) -> None:
    store = compacted(new_store, keyed(("a", "1"), ("b", "1")), keyed(("c", "1")))
    before = b"".join(bytes(part.data) for part in store.read(0))
    compact(store.log, NOW_MS + 1)
    assert b"".join(bytes(part.data) for part in store.read(0)) == before


def test_reading_at_a_compacted_offset_continues_with_the_next_one(new_store: NewStore) -> None:
    store = compacted(new_store, keyed(("a", "1")), keyed(("a", "2")), keyed(("a", "3"), ("b", "1")))
    compact(store.log, NOW_MS + 1)
    assert bases_of(store.read(0)) == [2]
    assert bases_of(store.read(1)) == [2]


def test_a_tombstone_is_kept_until_its_delete_horizon(new_store: NewStore) -> None:
    store = compacted(new_store, keyed(("a", "1")), keyed(("a", None), ("b", "1")), delete_retention_ms=DAY_MS)
    compact(store.log, NOW_MS + 1)
    assert pairs_of(store) == [(1, "a", None), (2, "b", "1")]
    assert {record.timestamp for record in records_of(store.read(0))} == {NOW_MS}, "the horizon changes no timestamp"
    later = NOW_MS + 1 + DAY_MS
    for now_ms, expected in ((later - 1, [1, 2, 3]), (later, [2, 3, 4])):
        store.write(keyed(("z", str(now_ms))))
        store.log.roll()
        store.directory.checkpoint()
        compact(store.log, now_ms, force=True)
        assert [offset for offset, _, _ in pairs_of(store) if offset < 3] == [
            offset for offset in expected if offset < 3
        ]


def test_records_without_a_key_stay(new_store: NewStore) -> None:
    plain = build_batch([Record(None, b"1", (), NOW_MS), Record(None, b"2", (), NOW_MS)])
    store = compacted(new_store, plain, keyed(("a", "1")), keyed(("a", "2")))
    compact(store.log, NOW_MS + 1)
    assert [offset for offset, _, _ in pairs_of(store)] == [0, 1, 3]


def test_the_last_batch_of_a_producer_stays_without_its_records(new_store: NewStore) -> None:
    first = keyed(("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0)
    second = keyed(("a", "2"), producer_id=7, producer_epoch=0, base_sequence=1)
    store = compacted(new_store, first, second, keyed(("a", "3")))
    compact(store.log, NOW_MS + 1)
    headers = [header for part in store.read(0) for _, header in iter_headers(part.data)]
    assert [(header.base_offset, header.count, header.base_sequence) for header in headers] == [(1, 0, 1), (2, 1, -1)]
    store.files.unlink("orders-0/snapshot")
    again = store.killed()
    assert again.append(second).base_offset == 1, "the retry is known, even from the log alone"


def test_control_batches_stay(new_store: NewStore) -> None:
    store = compacted(new_store, keyed(("a", "1")))
    marker = build_batch(
        [Record(b"\0\0\0\1", b"\0" * 6, (), NOW_MS)],
        control=True,
        producer_id=ProducerId(9),
        producer_epoch=ProducerEpoch(0),
        transactional=True,
    )
    store.append(marker, origin=AppendOrigin.COORDINATOR)
    store.write(keyed(("a", "2")))
    store.log.roll()
    store.directory.checkpoint()
    compact(store.log, NOW_MS + 1)
    assert bases_of(store.read(0)) == [1, 2]


def test_a_batch_that_cannot_be_decoded_stays_as_it_is(new_store: NewStore) -> None:
    odd = keyed(("a", "1"))
    # The offset delta: only the first record's length is checked when a batch is appended.
    odd[64] = 0x7F
    renew_crc(memoryview(odd), 0, len(odd))
    store = compacted(new_store, odd, keyed(("a", "2")), keyed(("a", "3")))
    compact(store.log, NOW_MS + 1)
    assert bases_of(store.read(0)) == [0, 2]
    assert store.log.corruption is None


def test_neighbouring_small_segments_become_one(new_store: NewStore) -> None:
    store = new_store(cleanup_policy={CleanupPolicy.COMPACT}, segment_bytes=1)
    for number in range(6):
        store.write(keyed((f"key{number % 2}", str(number))))
    store.log.roll()
    store.directory.checkpoint()
    store.log.config = replace(store.log.config, segment_bytes=1 << 20)
    done = compact(store.log, NOW_MS + 1)
    assert done is not None
    assert (done.segments_before, done.segments_after) == (6, 1)
    assert len(store.log.closed) == 1
    store.log.validate()


def test_only_committed_synced_closed_segments_are_compacted(new_store: NewStore) -> None:
    store = new_store(cleanup_policy={CleanupPolicy.COMPACT}, segment_bytes=1)
    for number in range(3):
        store.write(keyed(("a", str(number))))
    assert compact(store.log, NOW_MS + 1, force=True) is None, "nothing is synced yet"
    store.directory.checkpoint()
    compact(store.log, NOW_MS + 1, force=True)
    assert [value for _, _, value in pairs_of(store)] == ["1", "2"], "the active segment supersedes nothing yet"


def test_records_younger_than_the_lag_are_not_compacted(new_store: NewStore) -> None:
    store = compacted(new_store, keyed(("a", "1")), keyed(("a", "2")), min_compaction_lag_ms=1000)
    assert compact(store.log, NOW_MS + 999, force=True) is None
    assert compact(store.log, NOW_MS + 1000, force=True) is not None


def test_nothing_is_done_below_the_dirty_ratio_unless_forced(new_store: NewStore) -> None:
    store = compacted(new_store, *(keyed((f"key{number}", "1")) for number in range(9)), min_cleanable_dirty_ratio=0.5)
    compact(store.log, NOW_MS + 1)
    store.write(keyed(("key0", "2")))
    store.log.roll()
    store.directory.checkpoint()
    assert compact(store.log, NOW_MS + 1) is None
    assert compact(store.log, NOW_MS + 1, force=True) is not None
    assert (0, "key0", "1") not in pairs_of(store)


def test_a_log_is_compacted_below_the_dirty_ratio_when_its_oldest_dirty_record_is_too_old(new_store: NewStore) -> None:
    batches = [keyed((f"key{number}", "1")) for number in range(9)]
    store = compacted(new_store, *batches, min_cleanable_dirty_ratio=0.5, max_compaction_lag_ms=1000)
    assert compact(store.log, NOW_MS + 1) is not None
    store.write(keyed(("key0", "2")), build_batch([Record(b"key1", b"2", (), NOW_MS + 900)]))
    store.log.roll()
    store.directory.checkpoint()
    assert compact(store.log, NOW_MS + 1000) is None
    assert compact(store.log, NOW_MS + 1001) is not None
    assert (0, "key0", "1") not in pairs_of(store)
    assert compact(store.log, NOW_MS + 5000) is None, "nothing is dirty"


@pytest.mark.parametrize(("policy", "rolled_ms"), [(CleanupPolicy.COMPACT, 1000), (CleanupPolicy.DELETE, 5000)])
def test_the_active_segment_of_a_compacted_log_is_rolled_at_the_largest_lag(
    new_store: NewStore, policy: CleanupPolicy, rolled_ms: int
) -> None:
    store = new_store(cleanup_policy={policy}, retention_ms=-1, segment_ms=5000, max_compaction_lag_ms=1000)
    store.write(keyed(("a", "1")))
    assert not apply_retention(store.log, NOW_MS + rolled_ms - 1).rolled
    assert apply_retention(store.log, NOW_MS + rolled_ms).rolled


def test_a_log_with_more_keys_than_memory_is_compacted_in_rounds(new_store: NewStore) -> None:
    batches = [keyed((f"key{number % 20}", str(number))) for number in range(60)]
    store = compacted(new_store, *batches, compaction_map_bytes_max=1024)
    rounds = 0
    while (done := compact(store.log, NOW_MS + 1, force=True)) is not None:
        rounds += 1
        assert rounds < 100
        assert done.cleaned_offset > 0
    assert rounds > 5
    assert store.log.state.cleaned_offset == 60
    newest = {f"key{number % 20}": str(number) for number in range(60)}
    assert {key: value for _, key, value in pairs_of(store)} == newest
    store.log.validate()


def test_a_topic_that_is_not_compacted_is_left_alone(new_store: NewStore) -> None:
    store = compacted(new_store, keyed(("a", "1")), keyed(("a", "2")), cleanup_policy={CleanupPolicy.DELETE})
    assert plan_compaction(store.log, NOW_MS + 1, force=True) is None


def test_a_reader_of_a_replaced_segment_finishes(new_store: NewStore) -> None:
    store = compacted(new_store, keyed(("a", "1")), keyed(("a", "2")))
    reader = store.read(0)
    compact(store.log, NOW_MS + 1)
    store.directory.remove_files(NOW_MS + DAY_MS, files_max=100)
    assert [record.value for record in records_of(reader)] == [b"1", b"2"]


def test_a_truncation_in_the_middle_of_a_pass_wins(new_store: NewStore) -> None:
    store = compacted(new_store, keyed(("a", "1")), keyed(("a", "2")), keyed(("a", "3")))
    compaction = plan_compaction(store.log, NOW_MS + 1)
    assert compaction is not None
    compaction.build_map()
    rewritten = [compaction.rewrite(group) for group in compaction.groups()]
    truncate(store.log, Offset(1))
    for rewrite in rewritten:
        compaction.apply(rewrite)
    assert pairs_of(store) == [(0, "a", "1")], "what superseded it was cut off"
    compaction.finish()
    assert store.log.state.cleaned_offset == 0
    assert not [name for name in store.files.list(PARTITION.directory) if name.endswith(".tmp")]


def test_corruption_stops_the_pass_and_quarantines_the_log(new_store: NewStore) -> None:
    store = compacted(new_store, keyed(("a", "1")), keyed(("a", "2")))
    flip(store.files, store.log.closed[1].path, -1)
    with pytest.raises(CorruptLogError) as raised:
        compact(store.log, NOW_MS + 1)
    assert raised.value.file == store.log.closed[1].path
    assert store.log.corruption is raised.value
    assert len(store.log.closed) == 2, "nothing was removed"


@pytest.mark.parametrize("call", ["open", "pread"])
def test_a_segment_that_cannot_be_read_fails_the_pass_and_nothing_else(new_store: NewStore, call: str) -> None:
    """Wherever in the pass it happens, the segments written before stay valid."""
    files = FaultyFiles(MemoryFiles(), only={call}, matching=lambda path: path.endswith(".log"))
    store = compacted(lambda **settings: new_store(files, **settings), *(keyed(("a", str(n))) for n in range(3)))
    tries = 0
    while True:
        files.fail_at = files.calls + 1 + tries
        try:
            done = compact(store.log, NOW_MS + 1)
            break
        except ReadFailedError:
            tries += 1
        assert store.directory.environment.health.failure is None
        assert store.log.corruption is None
    assert done is not None
    assert tries > 0
    files.fail_at = None
    assert pairs_of(store) == [(2, "a", "2")]


def test_a_compacted_log_is_the_same_after_a_kill(new_store: NewStore) -> None:
    store = compacted(new_store, *(keyed((f"key{number % 3}", str(number))) for number in range(12)))
    compact(store.log, NOW_MS + 1)
    again = store.killed()
    assert pairs_of(again) == pairs_of(store)
    assert again.log.state.cleaned_offset == 12
    assert again.log.log_end_offset == 12


def test_the_map_never_holds_more_keys_than_its_memory(new_store: NewStore) -> None:
    offsets = OffsetMap(2000)
    room = offsets.room
    for number in range(room):
        offsets.put(b"%d" % number, Offset(number))
    assert offsets.room == 0
    offsets.put(b"0", Offset(99))
    assert offsets.room == 0, "a known key takes no more room"
    assert not offsets.is_newest(b"0", Offset(98))
    assert offsets.is_newest(b"0", Offset(99))
    assert offsets.is_newest(b"unknown", Offset(0))


def test_retention_in_the_middle_of_a_pass_wins(new_store: NewStore) -> None:
    policy = {CleanupPolicy.COMPACT, CleanupPolicy.DELETE}
    store = compacted(new_store, keyed(("a", "1")), keyed(("b", "2")), cleanup_policy=policy, retention_bytes=0)
    compaction = plan_compaction(store.log, NOW_MS + 1, force=True)
    assert compaction is not None
    compaction.build_map()
    groups = list(compaction.groups())
    assert apply_retention(store.log, NOW_MS + 1).removed != []
    with pytest.raises(LogModifiedError):
        compaction.rewrite(groups[0])
    assert store.directory.environment.health.failure is None


def test_tombstones_may_be_kept_for_ever(new_store: NewStore) -> None:
    for_ever_ms = 2**63 - 1
    store = compacted(new_store, keyed(("a", "1")), keyed(("a", None)), delete_retention_ms=for_ever_ms)
    compact(store.log, NOW_MS + 1)
    assert pairs_of(store) == [(1, "a", None)]
