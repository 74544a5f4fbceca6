from logbrook.core.coordinator import CoordinatorRecord
from logbrook.core.groups.messages import NO_OFFSET, FetchedOffset, OffsetToCommit
from logbrook.core.groups.offsets import GroupOffsets
from logbrook.core.groups.records import OffsetKey, OffsetValue, decode_key, decode_offset_value
from logbrook.model.identifiers import LeaderEpoch, Offset, ProducerId
from tests.unit.core.groups.kit import T0, T1


def replay(offsets: GroupOffsets, records: list[CoordinatorRecord]) -> None:
    for key, value in records:
        decoded = decode_key(key)
        assert isinstance(decoded, OffsetKey)
        offsets.replay(decoded.partition, None if value is None else decode_offset_value(value))


def committed(now_ms: int = 0) -> GroupOffsets:
    """Offsets of one partition, committed at this time."""
    offsets = GroupOffsets("g")
    replay(offsets, offsets.commit_records([OffsetToCommit(T0, Offset(5), LeaderEpoch(1), "note")], now_ms))
    return offsets


def test_an_offset_is_visible_when_it_was_replayed() -> None:
    offsets = GroupOffsets("g")
    records = offsets.commit_records([OffsetToCommit(T0, Offset(5), LeaderEpoch(1), "note")], now_ms=0)
    assert offsets.fetch([T0]) == {T0: NO_OFFSET}
    replay(offsets, records)
    assert offsets.fetch([T0, T1]) == {T0: FetchedOffset(Offset(5), LeaderEpoch(1), "note"), T1: NO_OFFSET}


def test_all_committed_offsets_are_returned() -> None:
    assert committed().fetch(None) == {T0: FetchedOffset(Offset(5), LeaderEpoch(1), "note")}


def test_an_offset_expires_after_its_retention_and_not_before() -> None:
    offsets = committed(now_ms=1_000)
    assert offsets.expired(1_999, 1_000, None, ()) == []
    assert offsets.expired(2_000, 1_000, None, ()) == [T0]


def test_the_retention_counts_from_when_the_group_became_idle_if_that_was_later() -> None:
    offsets = committed(now_ms=1_000)
    assert offsets.expired(2_499, 1_000, 1_500, ()) == []
    assert offsets.expired(2_500, 1_000, 1_500, ()) == [T0]


def test_a_commit_after_the_group_became_empty_starts_its_own_retention() -> None:
    assert committed(now_ms=1_000).expired(1_500, 1_000, 0, ()) == []


def test_offsets_of_topics_that_are_read_are_kept() -> None:
    assert committed().expired(10_000, 1_000, None, {"t"}) == []


def test_an_expiry_that_an_old_client_chose_counts() -> None:
    offsets = GroupOffsets("g")
    offsets.replay(T0, OffsetValue(Offset(5), LeaderEpoch(-1), "", commit_timestamp_ms=0, expire_timestamp_ms=300))
    assert offsets.expired(299, 10, None, ()) == []
    assert offsets.expired(300, 10_000, None, ()) == [T0]


def test_a_new_commit_restarts_the_retention() -> None:
    offsets = committed(now_ms=0)
    replay(offsets, offsets.commit_records([OffsetToCommit(T0, Offset(6))], now_ms=5_000))
    assert offsets.expired(5_999, 1_000, None, ()) == []
    assert offsets.expired(6_000, 1_000, None, ()) == [T0]


def pending(producer_id: int = 1, offset: int = 7, now_ms: int = 0) -> GroupOffsets:
    """Offsets of one partition: 5 is committed, and another in a transaction."""
    offsets = committed()
    offsets.replay_pending(ProducerId(producer_id), T0, OffsetValue(Offset(offset), LeaderEpoch(-1), "", now_ms))
    return offsets


def test_an_offset_in_a_transaction_is_visible_when_the_transaction_commits() -> None:
    offsets = pending()
    assert offsets.fetch([T0]) == {T0: FetchedOffset(Offset(5), LeaderEpoch(1), "note")}
    assert offsets.unstable == {T0}
    offsets.end_transaction(ProducerId(1), is_commit=True)
    assert offsets.fetch(None) == {T0: FetchedOffset(Offset(7))}
    assert offsets.unstable == frozenset()


def test_an_offset_in_a_transaction_is_removed_when_the_transaction_aborts() -> None:
    offsets = pending()
    offsets.end_transaction(ProducerId(1), is_commit=False)
    assert offsets.fetch(None) == {T0: FetchedOffset(Offset(5), LeaderEpoch(1), "note")}
    assert offsets.unstable == frozenset()


def test_a_plain_commit_after_one_in_a_transaction_is_not_undone_by_its_end() -> None:
    offsets = pending()
    replay(offsets, offsets.commit_records([OffsetToCommit(T0, Offset(9))], now_ms=1))
    assert offsets.unstable == frozenset(), "whatever becomes of the transaction, this is the offset"
    offsets.end_transaction(ProducerId(1), is_commit=True)
    assert offsets.fetch([T0]) == {T0: FetchedOffset(Offset(9))}


def test_an_offset_in_a_transaction_does_not_expire_nor_does_the_one_it_may_replace() -> None:
    offsets = pending()
    assert offsets.expired(10**9, 1_000, None, ()) == []
    assert offsets.has_others_than([T0])
    offsets.end_transaction(ProducerId(1), is_commit=False)
    assert offsets.expired(10**9, 1_000, None, ()) == [T0]
    assert not offsets.has_others_than([T0])


def test_a_deletion_covers_offsets_in_transactions() -> None:
    offsets = GroupOffsets("g")
    offsets.replay_pending(ProducerId(1), T0, OffsetValue(Offset(7), LeaderEpoch(-1), "", 0))
    deletion = offsets.tombstones([T0, T1])
    assert deletion == offsets.tombstones_where(lambda _: True) == [(OffsetKey("g", T0).encode(), None)]
    replay(offsets, deletion)
    assert not offsets
    offsets.end_transaction(ProducerId(1), is_commit=True)
    assert not offsets
