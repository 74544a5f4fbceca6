"""The bound on the producers of all logs together: which ones are dropped, when, and what it costs."""

from itertools import count

import pytest

from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset, ProducerId
from logbrook.records.batch import read_header
from logbrook.storage.log import Log
from logbrook.storage.producer_bound import ProducerBound, fair_shares
from logbrook.storage.producer_state import ProducerStateTable
from logbrook.storage.truncation import truncate
from tests.unit.storage.kit import NOW_MS, PARTITION, NewStore, Store, batch

TOTAL_MAX = 100


def partition(number: int) -> TopicPartition:
    return TopicPartition("wide", number)


def produce(log: Log, *producer_ids: int, transactional: bool = False) -> None:
    """Append a batch of each producer, the first that it writes to this log."""
    for producer_id in producer_ids:
        log.append(batch(producer=(producer_id, 0, 0), transactional=transactional), now_ms=NOW_MS)


def total(store: Store) -> int:
    return sum(len(log.producers) for log in store.directory)


@pytest.fixture
def store(open_store: NewStore) -> Store:
    store = open_store(producer_ids_total_max=TOTAL_MAX)
    for number in range(20):
        store.create(partition(number))
    return store


@pytest.mark.parametrize(
    ("counts", "total_max", "shares"),
    [
        ([], 10, []),
        ([3, 4], 10, [3, 4]),
        ([3, 9], 10, [3, 7]),
        ([9, 3], 10, [7, 3]),
        ([20, 1, 20], 11, [5, 1, 5]),
        ([5, 5, 5], 10, [3, 3, 4]),
        ([1, 1, 1], 2, [0, 1, 1]),
        ([7, 8], 0, [0, 0]),
    ],
)
def test_the_largest_tables_are_reduced_first(counts: list[int], total_max: int, shares: list[int]) -> None:
    assert fair_shares(counts, total_max) == shares


def test_producers_of_many_partitions_do_not_exceed_the_total(store: Store) -> None:
    logs = list(store.directory)
    for producer_id in range(1_000):
        produce(logs[producer_id % len(logs)], producer_id)
        assert total(store) <= TOTAL_MAX
    assert total(store) >= TOTAL_MAX * 9 // 10


def test_the_producers_that_wrote_first_are_dropped_from_the_largest_table(store: Store) -> None:
    quiet, busy = store.directory.get(partition(0)), store.directory.get(partition(1))
    produce(quiet, 1, 2, 3)
    produce(busy, *range(1_000, 1_098))
    assert quiet.producers.ids() == {1, 2, 3}
    assert busy.producers.ids() == set(range(1_011, 1_098)), "the newest, up to nine tenths of the total"


def test_the_producer_that_has_just_written_is_kept(store: Store) -> None:
    log = store.directory.get(partition(0))
    for producer_id in range(1_000):
        produce(log, producer_id)
        assert producer_id in log.producers.ids()


def test_a_retry_of_a_producer_that_is_kept_is_a_duplicate(store: Store) -> None:
    quiet, busy = store.directory.get(partition(0)), store.directory.get(partition(1))
    produce(quiet, 7)
    produce(busy, *range(1_000, 3_000))
    assert quiet.append(batch(producer=(7, 0, 0)), now_ms=NOW_MS).duplicate


def test_a_producer_with_an_open_transaction_is_kept(store: Store) -> None:
    log, other = store.directory.get(partition(0)), store.directory.get(partition(1))
    produce(log, *range(30), transactional=True)
    produce(other, *range(1_000, 2_000))
    assert log.producers.ids() == set(range(30))
    assert total(store) <= TOTAL_MAX


def test_open_transactions_above_the_total_are_kept_and_not_counted_at_every_append(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = count()
    enforce = ProducerBound._enforce
    monkeypatch.setattr(ProducerBound, "_enforce", lambda bound: (next(counts), enforce(bound)))
    log, other = store.directory.get(partition(0)), store.directory.get(partition(1))
    produce(log, *range(TOTAL_MAX + 50), transactional=True)
    produce(other, *range(1_000, 2_000))
    assert log.producers.ids() == set(range(TOTAL_MAX + 50))
    assert len(other.producers) <= TOTAL_MAX // 10
    assert next(counts) <= 1_200 // (TOTAL_MAX // 10)


def test_appends_of_known_producers_count_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    log = store.directory.get(partition(0))
    produce(log, *range(TOTAL_MAX))
    monkeypatch.setattr(ProducerBound, "_enforce", lambda _bound: pytest.fail("counted"))
    for sequence in range(1, 50):
        log.append(batch(producer=(TOTAL_MAX - 1, 0, sequence)), now_ms=NOW_MS)


def test_producers_of_deleted_logs_do_not_count(store: Store) -> None:
    quiet = store.directory.get(partition(0))
    produce(quiet, *range(60))
    for number in range(1, 20):
        produce(store.directory.get(partition(number)), *range(1_000, 1_039))
        store.directory.delete(partition(number), NOW_MS)
    assert len(quiet.producers) == 60


def test_dropped_producers_stay_dropped_after_a_restart(store: Store) -> None:
    log, other = store.directory.get(partition(0)), store.directory.get(partition(1))
    produce(log, *range(60))
    store.directory.checkpoint()
    produce(other, *range(1_000, 1_200))
    kept = log.producers.ids()
    assert len(kept) < 60
    again = store.reopened(producer_ids_total_max=10_000)
    assert again.directory.get(partition(0)).producers.ids() == kept


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_lower_total_takes_effect_at_the_start(store: Store, is_clean: bool) -> None:
    for log in store.directory:
        produce(log, *range(4))
    store.directory.commit()
    again = store.reopened(producer_ids_total_max=50) if is_clean else store.killed(producer_ids_total_max=50)
    assert 45 <= total(again) <= 50
    produce(again.directory.get(partition(0)), *range(1_000, 1_200))
    assert total(again) <= 50


@pytest.mark.parametrize("is_repair", [False, True])
def test_producers_that_a_truncation_or_a_repair_brings_back_count(open_store: NewStore, is_repair: bool) -> None:
    store = open_store(producer_ids_total_max=TOTAL_MAX)
    log, other = store.create(), store.create(partition(1))
    produce(log, *range(80))
    store.directory.commit()
    log.expire_producers(NOW_MS + 1)
    produce(other, *range(1_000, 1_080))
    if is_repair:
        store.directory.repair(PARTITION)
    else:
        truncate(log, Offset(79))
    assert len(store.log.producers) > 0
    assert total(store) <= TOTAL_MAX


def test_a_log_without_a_snapshot_is_replayed_within_the_bound_of_a_partition(open_store: NewStore) -> None:
    store = open_store(producer_ids_max=10_000)
    produce(store.create(), *range(200))
    store.directory.commit()
    again = store.killed(producer_ids_max=50)
    assert len(again.log.producers) <= 50
    assert 199 in again.log.producers.ids()


def test_a_replay_never_holds_more_producers_than_the_bound_of_a_partition() -> None:
    producers = ProducerStateTable(PARTITION, count_max=50)
    for producer_id in range(200):
        producers.replay(read_header(batch(producer=(producer_id, 0, 0))), Offset(producer_id), b"")
        assert len(producers) <= 50
        assert producers.get(ProducerId(producer_id)) is not None
