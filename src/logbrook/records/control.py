"""Transaction markers: control batches with one record, written by the transaction coordinator.

    key     int16 version, int16 type (0 abort, 1 commit)
    value   int16 version, int32 coordinator epoch

Later versions may add fields at the end, so trailing bytes are ignored, as in Kafka.
"""

from struct import Struct
from typing import NamedTuple

from typing_extensions import Buffer

from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.records.batch import HEADER_BYTES, read_header
from logbrook.records.builder import build_batch
from logbrook.records.errors import CorruptBatchError
from logbrook.records.reader import iter_records
from logbrook.records.record import Record

_ABORT, _COMMIT = 0, 1
_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0
# Far above the size of any marker.
_BYTES_MAX = 4096


class Marker(NamedTuple):
    """The outcome of a transaction and the epoch of the coordinator that decided it."""

    is_commit: bool
    coordinator_epoch: int


def build_marker(
    producer_id: ProducerId, producer_epoch: ProducerEpoch, is_commit: bool, timestamp_ms: int, coordinator_epoch: int
) -> bytearray:
    """Encode the control batch that ends a producer's open transaction."""
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
    """Decode the marker in `batch`; None if it is not a transaction marker.

    Does not verify the checksum. Raises RecordsError for a malformed control batch.
    """
    view = memoryview(batch).cast("B")
    if len(view) < HEADER_BYTES:
        raise CorruptBatchError(f"{len(view)} bytes are fewer than a batch header's {HEADER_BYTES}")
    if not read_header(view).is_control:
        return None
    records = list(iter_records(view, bytes_max=_BYTES_MAX, with_headers=False))
    if not records:
        # Compaction may remove the record of a producer's last marker.
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
        raise CorruptBatchError(f"a transaction marker is in a batch of {len(records)} records, expected 1")
    if value is None or len(value) < _VALUE.size:
        raise CorruptBatchError("a transaction marker has no coordinator epoch")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < _VERSION:
        raise CorruptBatchError(f"a transaction marker has version {version}")
    return Marker(kind == _COMMIT, coordinator_epoch)
