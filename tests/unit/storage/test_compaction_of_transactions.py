"""What compaction makes of transactions: it leaves them alone, as long as it cannot tell which were committed."""

import pytest

from logbrook.config import CleanupPolicy
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.storage.batch_set import Origin
from logbrook.storage.compaction import compact
from tests.unit.storage.kit import NOW_MS, NewStore, Store, batch

ABORT, COMMIT = 0, 1


def marker(kind: int) -> bytearray:
    """The control batch that ends the transaction of producer 7."""
    key = b"\x00\x00" + kind.to_bytes(2, "big")
    records = [Record(key, bytes(6), (), NOW_MS)]
    return build_batch(records, producer_id=7, producer_epoch=0, transactional=True, control=True)


def compacted_after(new_store: NewStore, kind: int) -> Store:
    """A committed value of a key, then another one in a transaction that ended like this, compacted."""
    store = new_store(cleanup_policy={CleanupPolicy.COMPACT})
    store.write(batch(b"before", key=b"k"))
    store.write(batch(b"in the transaction", key=b"k", producer=(7, 0, 0), transactional=True))
    store.append(marker(kind), origin=Origin.COORDINATOR)
    store.directory.commit()
    store.log.roll()
    store.directory.checkpoint()
    assert compact(store.log, NOW_MS, force=True) is not None
    return store


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_a_transactional_record_stays_and_supersedes_nothing(new_store: NewStore, kind: int) -> None:
    """A reader of committed records is never shown an aborted one, so the older one is what it must find."""
    assert compacted_after(new_store, kind).values()[:2] == [b"before", b"in the transaction"]


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_the_marker_of_a_transaction_stays_as_long_as_its_records_do(new_store: NewStore, kind: int) -> None:
    store = compacted_after(new_store, kind)
    if b"in the transaction" in store.values():
        assert bytes(6) in store.values()


def test_an_open_transaction_is_not_touched(new_store: NewStore) -> None:
    store = new_store(cleanup_policy={CleanupPolicy.COMPACT}, segment_bytes=1)
    store.write(batch(b"before", key=b"k"))
    store.write(batch(b"undecided", key=b"k", producer=(7, 0, 0), transactional=True))
    store.write(batch(b"after", key=b"k"))
    store.log.roll()
    store.directory.checkpoint()
    compact(store.log, NOW_MS, force=True)
    assert store.values() == [b"before", b"undecided", b"after"]
