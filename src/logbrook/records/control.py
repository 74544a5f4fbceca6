"""The marker that ends a transaction: a control batch with one record, written by the coordinator, never by a client.

    key     int16 version, int16 type (0 abort, 1 commit)
    value   int16 version, int32 epoch of the coordinator that decided

Later versions may add fields at the end, so what follows these is not looked at, as Kafka's readers have it.
"""

from struct import Struct
from typing import NamedTuple

from typing_extensions import Buffer

from logbrook.records.batch import HEADER_BYTES, read_header
from logbrook.records.builder import build_batch
from logbrook.records.errors import CorruptBatchError
from logbrook.records.reader import iter_records
from logbrook.records.record import Record

_ABORT, _COMMIT = 0, 1
_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0
# Far more than a marker of any version has.
_BYTES_MAX = 4096


class Marker(NamedTuple):
    """How a transaction ended, and in which epoch of its coordinator that was decided."""

    is_commit: bool
    coordinator_epoch: int


def build_marker(
    producer_id: int, producer_epoch: int, is_commit: bool, timestamp_ms: int, coordinator_epoch: int
) -> bytearray:
    """The batch that ends the open transaction of a producer."""
    key = _KEY.pack(_VERSION, _COMMIT if is_commit else _ABORT)
    value = _VALUE.pack(_VERSION, coordinator_epoch)
    return build_batch(
        [Record(key, value, timestamp=timestamp_ms)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(batch: Buffer) -> Marker | None:
    """What the one batch in `batch` says of its producer's transaction; None when it is not a transaction's marker.

    The checksum is the caller's to check. Raises RecordsError for a control batch that cannot be read.
    """
    view = memoryview(batch).cast("B")
    if len(view) < HEADER_BYTES:
        raise CorruptBatchError(f"{len(view)} bytes are no batch, its header alone has {HEADER_BYTES}")
    if not read_header(view).is_control:
        return None
    records = list(iter_records(view, bytes_max=_BYTES_MAX, with_headers=False))
    if not records:
        # What compaction leaves where the transaction is gone.
        return None
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _KEY.size:
        raise CorruptBatchError("a control record has no version and type")
    version, kind = _KEY.unpack_from(key)
    if version < _VERSION:
        raise CorruptBatchError(f"a control record has version {version}")
    if kind not in (_ABORT, _COMMIT):
        return None
    if len(records) > 1:
        raise CorruptBatchError(f"a transaction's marker stands in a batch of {len(records)} records")
    if value is None or len(value) < _VALUE.size:
        raise CorruptBatchError("a transaction's marker has no coordinator epoch")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < _VERSION:
        raise CorruptBatchError(f"a transaction's marker has version {version}")
    return Marker(kind == _COMMIT, coordinator_epoch)
