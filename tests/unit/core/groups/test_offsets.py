from logbrook.core.groups import NO_OFFSET, CommittedOffset, OffsetToCommit
from logbrook.core.groups.offsets import GroupOffsets
from logbrook.core.groups.records import OffsetKey, OffsetValue, decode_key, decode_offset_value
from logbrook.core.groups.results import Record
from tests.unit.core.groups.kit import T0, T1


def replay(offsets: GroupOffsets, records: list[Record]) -> None:
    for key, value in records:
        what = decode_key(key)
        assert isinstance(what, OffsetKey)
        offsets.replay(what.partition, None if value is None else decode_offset_value(value))


def committed(now_ms: int = 0) -> GroupOffsets:
    """Offsets of one partition, committed at this time."""
    offsets = GroupOffsets("g")
    replay(offsets, offsets.commit([OffsetToCommit(T0, 5, 1, "note")], now_ms))
    return offsets


def test_an_offset_is_visible_when_it_was_replayed() -> None:
    offsets = GroupOffsets("g")
    records = offsets.commit([OffsetToCommit(T0, 5, 1, "note")], now_ms=0)
    assert offsets.fetch([T0]) == {T0: NO_OFFSET}
    replay(offsets, records)
    assert offsets.fetch([T0, T1]) == {T0: CommittedOffset(5, 1, "note"), T1: NO_OFFSET}


def test_all_offsets_are_those_that_there_are() -> None:
    assert committed().fetch(None) == {T0: CommittedOffset(5, 1, "note")}


def test_an_offset_expires_after_its_retention_and_not_before() -> None:
    offsets = committed(now_ms=1_000)
    assert offsets.expired(1_999, 1_000, None, ()) == []
    assert offsets.expired(2_000, 1_000, None, ()) == [T0]


def test_the_retention_counts_from_when_the_group_became_idle_if_that_was_later() -> None:
    offsets = committed(now_ms=1_000)
    assert offsets.expired(2_499, 1_000, 1_500, ()) == []
    assert offsets.expired(2_500, 1_000, 1_500, ()) == [T0]


def test_a_commit_after_the_group_became_idle_counts_for_itself() -> None:
    assert committed(now_ms=1_000).expired(1_500, 1_000, 0, ()) == []


def test_offsets_of_topics_that_are_read_are_kept() -> None:
    assert committed().expired(10_000, 1_000, None, {"t"}) == []


def test_an_expiry_that_an_old_client_chose_counts() -> None:
    offsets = GroupOffsets("g")
    offsets.replay(T0, OffsetValue(5, -1, "", commit_timestamp_ms=0, expire_timestamp_ms=300))
    assert offsets.expired(299, 10, None, ()) == []
    assert offsets.expired(300, 10_000, None, ()) == [T0]


def test_a_partition_whose_commit_is_on_its_way_does_not_expire() -> None:
    offsets = committed(now_ms=0)
    records = offsets.commit([OffsetToCommit(T0, 6)], now_ms=5_000)
    assert offsets.expired(5_000, 1_000, None, ()) == []
    replay(offsets, records)
    assert offsets.expired(5_000, 1_000, None, ()) == []
    assert offsets.expired(6_000, 1_000, None, ()) == [T0]


def test_of_two_commits_on_their_way_the_first_to_arrive_leaves_the_partition_marked() -> None:
    offsets = committed(now_ms=0)
    first = offsets.commit([OffsetToCommit(T0, 6)], now_ms=100)
    offsets.commit([OffsetToCommit(T0, 7)], now_ms=5_000)
    replay(offsets, first)
    assert offsets.expired(6_000, 1_000, None, ()) == []


def test_a_deletion_covers_commits_on_their_way() -> None:
    offsets = GroupOffsets("g")
    commit = offsets.commit([OffsetToCommit(T0, 5)], now_ms=0)
    deletion = offsets.delete([T0, T1])
    assert deletion == [(OffsetKey("g", T0).encode(), None)]
    replay(offsets, commit + deletion)
    assert not offsets


def test_what_was_decided_long_ago_is_not_on_its_way_any_more() -> None:
    offsets = GroupOffsets("g")
    offsets.commit([OffsetToCommit(T0, 5)], now_ms=100)
    offsets.forget_decided_before(100)
    assert offsets
    offsets.forget_decided_before(101)
    assert not offsets


def test_a_commit_that_failed_is_forgotten() -> None:
    offsets = GroupOffsets("g")
    offsets.commit([OffsetToCommit(T0, 5)], now_ms=100)
    offsets.settle(T0, OffsetValue(5, -1, "", 100))
    assert not offsets


def pending(producer_id: int = 1, offset: int = 7, now_ms: int = 0) -> GroupOffsets:
    """Offsets of one partition: 5 is committed, and another in a transaction."""
    offsets = committed()
    offsets.replay_pending(producer_id, T0, OffsetValue(offset, -1, "", now_ms))
    return offsets


def test_an_offset_in_a_transaction_is_visible_when_the_transaction_commits() -> None:
    offsets = pending()
    assert offsets.fetch([T0]) == {T0: CommittedOffset(5, 1, "note")}
    assert offsets.unstable == {T0}
    offsets.end_transaction(1, is_commit=True)
    assert offsets.fetch(None) == {T0: CommittedOffset(7)}
    assert offsets.unstable == frozenset()


def test_an_offset_in_a_transaction_is_forgotten_when_the_transaction_aborts() -> None:
    offsets = pending()
    offsets.end_transaction(1, is_commit=False)
    assert offsets.fetch(None) == {T0: CommittedOffset(5, 1, "note")}
    assert offsets.unstable == frozenset()


def test_a_plain_commit_after_one_in_a_transaction_is_not_undone_by_its_end() -> None:
    offsets = pending()
    replay(offsets, offsets.commit([OffsetToCommit(T0, 9)], now_ms=1))
    assert offsets.unstable == frozenset(), "whatever becomes of the transaction, this is the offset"
    offsets.end_transaction(1, is_commit=True)
    assert offsets.fetch([T0]) == {T0: CommittedOffset(9)}


def test_an_offset_in_a_transaction_does_not_expire_nor_does_the_one_it_may_replace() -> None:
    offsets = pending()
    assert offsets.expired(10**9, 1_000, None, ()) == []
    assert offsets.has_others_than([T0])
    offsets.end_transaction(1, is_commit=False)
    assert offsets.expired(10**9, 1_000, None, ()) == [T0]
    assert not offsets.has_others_than([T0])


def test_a_deletion_covers_offsets_in_transactions() -> None:
    offsets = GroupOffsets("g")
    offsets.replay_pending(1, T0, OffsetValue(7, -1, "", 0))
    deletion = offsets.delete([T0, T1])
    assert deletion == offsets.delete_where(lambda _: True) == [(OffsetKey("g", T0).encode(), None)]
    replay(offsets, deletion)
    assert not offsets
    offsets.end_transaction(1, is_commit=True)
    assert not offsets


def test_a_commit_in_a_transaction_is_on_its_way_until_it_is_replayed() -> None:
    offsets = committed()
    ((_, value),) = offsets.commit([OffsetToCommit(T0, 6)], now_ms=5_000)
    assert value is not None
    assert offsets.expired(10**9, 1_000, None, ()) == []
    offsets.replay_pending(1, T0, decode_offset_value(value))
    offsets.end_transaction(1, is_commit=False)
    assert offsets.expired(10**9, 1_000, None, ()) == [T0]
