"""Random batches of every shape: codecs, idempotent and transactional producers, tombstones.

Every value is unique, so that a record at the wrong offset is always detected.
"""

from itertools import count
from random import Random

from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.records.batch import Codec
from logbrook.records.builder import build_batch
from logbrook.records.control import build_marker
from logbrook.records.record import Record

_CODECS = (Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
_KEYS = tuple(f"key-{number}".encode() for number in range(6))
_TIME_SPREAD_MS = 5_000


class BatchSource:
    """Draws batches from `rng`; `name` makes the values of two sources distinct."""

    def __init__(self, rng: Random, name: str) -> None:
        self._rng = rng
        self._name = name
        self._serial = count()

    def batch(
        self,
        now_ms: int,
        *,
        keyed: bool = False,
        producer: tuple[int, int, int] | None = None,
        transactional: bool = False,
    ) -> bytearray:
        """A client batch, from `producer` (id, epoch, base sequence) if given."""
        producer_id, producer_epoch, base_sequence = producer or (-1, -1, -1)
        return build_batch(
            [self._record(now_ms, keyed) for _ in range(self._rng.choice((1, 1, 2, 3)))],
            codec=self._rng.choice(_CODECS),
            producer_id=ProducerId(producer_id),
            producer_epoch=ProducerEpoch(producer_epoch),
            base_sequence=base_sequence,
            transactional=transactional,
        )

    def marker(self, now_ms: int, producer_id: int, producer_epoch: int) -> bytearray:
        """A commit or abort marker."""
        is_commit = self._rng.random() < 0.5
        return build_marker(
            ProducerId(producer_id),
            ProducerEpoch(producer_epoch),
            is_commit,
            now_ms,
            coordinator_epoch=self._rng.randint(0, 3),
        )

    def _record(self, now_ms: int, keyed: bool) -> Record:
        rng = self._rng
        serial = next(self._serial)
        key = rng.choice(_KEYS) if keyed else None
        filler = b"." * rng.choice((0, 10, 40, 120, 300))
        value = None if keyed and rng.random() < 0.2 else f"{self._name}:{serial}:".encode() + filler
        headers = (("serial", str(serial).encode()),)
        timestamp = max(0, now_ms + rng.randint(-_TIME_SPREAD_MS, _TIME_SPREAD_MS))
        return Record(key, value, headers, timestamp)
