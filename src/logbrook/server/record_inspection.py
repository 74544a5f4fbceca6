"""Inspection of clients' batches, for topics whose settings require it (`LogConfig.needs_inspection`).

Decoding a batch may take long, so it is done in one separate thread, in the order of submission: batches of a partition
are appended in the order in which they arrived. Small batches are inspected at once, if none of their partition is
waiting. The request stays in flight meanwhile, so its memory is counted; a request whose connection is closed is
cancelled, see `Inspection.abandon`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from logbrook.config import CleanupPolicy, CompressionType, LogConfig, Validation
from logbrook.config.topics import DEFAULT_LEVEL, INT64_MAX
from logbrook.model import LogbrookError
from logbrook.model.event_log import event_logger
from logbrook.ports import Clock
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.batch import CODEC_MASK, HEADER_BYTES, Codec, read_header
from logbrook.records.inspection import InspectionRules, inspect_batches
from logbrook.server.errors import RequestRefusedError
from logbrook.storage.log import Log

# A batch within both limits is inspected in some tens of microseconds.
_INLINE_BYTES_MAX = 16 * 1024
_INLINE_RECORDS_MAX = 16
# Batches of closed connections are inspected and appended, as far as they fit into this.
_ABANDONED_BYTES_MAX = 64 << 20

_CODECS = {
    CompressionType.UNCOMPRESSED: Codec.NONE,
    CompressionType.GZIP: Codec.GZIP,
    CompressionType.SNAPPY: Codec.SNAPPY,
    CompressionType.LZ4: Codec.LZ4,
    CompressionType.ZSTD: Codec.ZSTD,
}
# As in Kafka, the default of compression.lz4.level stands for the fast algorithm, not for that level.
_LZ4_FAST_LEVEL = LogConfig().compression_lz4_level

_logger = event_logger(__name__)


class Inspection:
    """The inspection of one append. `data` is None once it is cancelled or done."""

    __slots__ = ("_inspector", "data", "log", "on_done", "size")

    def __init__(
        self,
        inspector: "RecordInspector",
        log: Log,
        data: memoryview,
        on_done: Callable[[memoryview | LogbrookError], None],
    ) -> None:
        self._inspector = inspector
        self.log = log
        self.data: memoryview | None = data
        self.size = len(data)
        self.on_done = on_done

    def abandon(self) -> None:
        """Free the memory of a batch whose client is gone, if too much of it is waiting.

        Otherwise it is inspected and appended: a producer with acks=0 may close its connection after the last batch.
        """
        if self._inspector.queued_bytes > _ABANDONED_BYTES_MAX:
            self.data = None


class RecordInspector:
    """One per broker, used on its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, decompressed_bytes_max: int) -> None:
        self.queued_bytes = 0
        self._loop = loop
        self._clock = clock
        self._decompressed_bytes_max = decompressed_bytes_max
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logbrook-inspection")
        self._queued: Counter[Log] = Counter()
        self._is_stopped = False

    def inspect(
        self, log: Log, data: memoryview, on_done: Callable[[memoryview | LogbrookError], None]
    ) -> Inspection | None:
        """Inspect one or more batches and call `on_done` with the bytes to append, or with the error.

        Returns None if it was called before this returns, else the inspection in progress.
        """
        rules = self._rules(log.config)
        if log not in self._queued and _is_small(data, rules):
            on_done(_inspect(data, rules))
            return None
        inspection = Inspection(self, log, data, on_done)
        self._queued[log] += 1
        self.queued_bytes += inspection.size
        self._thread.submit(self._run, inspection, rules)
        return inspection

    def stop(self) -> None:
        """End the thread. The inspections that are waiting are dropped: their requests were not answered."""
        self._is_stopped = True
        self._thread.shutdown(cancel_futures=True)

    def _rules(self, config: LogConfig) -> InspectionRules:
        bytes_max = self._decompressed_bytes_max
        if config.compression_type is CompressionType.UNCOMPRESSED:
            # More could not be stored.
            bytes_max = min(bytes_max, config.max_message_bytes)
        rules = InspectionRules(
            bytes_max=bytes_max,
            requires_keys=CleanupPolicy.COMPACT in config.cleanup_policy,
            is_full=config.validate is Validation.FULL,
            is_log_append_time=config.uses_log_append_time,
            codec=_CODECS.get(config.compression_type),
            level=_level(config),
        )
        if not config.limits_timestamps:
            return rules
        now_ms = self._clock.now_ms()
        before_ms, after_ms = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
        return rules._replace(
            timestamp_min=None if before_ms == INT64_MAX else now_ms - before_ms,
            timestamp_max=None if after_ms == INT64_MAX else now_ms + after_ms,
        )

    def _run(self, inspection: Inspection, rules: InspectionRules) -> None:
        """Inspect a batch. Runs in the thread."""
        data = inspection.data
        result = None if data is None else _inspect(data, rules)
        self._loop.call_soon_threadsafe(self._finish, inspection, result)

    def _finish(self, inspection: Inspection, result: memoryview | LogbrookError | None) -> None:
        log = inspection.log
        self.queued_bytes -= inspection.size
        self._queued[log] -= 1
        if not self._queued[log]:
            del self._queued[log]
        inspection.data = None
        if result is not None and not self._is_stopped:
            inspection.on_done(result)


def _level(config: LogConfig) -> int | None:
    """Return the level of the topic's codec, None for the default."""
    match config.compression_type:
        case CompressionType.GZIP:
            return None if config.compression_gzip_level == DEFAULT_LEVEL else config.compression_gzip_level
        case CompressionType.LZ4:
            return None if config.compression_lz4_level == _LZ4_FAST_LEVEL else config.compression_lz4_level
        case CompressionType.ZSTD:
            return config.compression_zstd_level
        case _:
            return None


def _is_small(data: memoryview, rules: InspectionRules) -> bool:
    """Return True for a single uncompressed batch that stays so and is quickly inspected."""
    if not HEADER_BYTES <= len(data) <= _INLINE_BYTES_MAX or rules.codec:
        return False
    header = read_header(data)
    is_plain = header.attributes & CODEC_MASK == Codec.NONE
    return is_plain and header.size == len(data) and header.count <= _INLINE_RECORDS_MAX


def _inspect(data: memoryview, rules: InspectionRules) -> memoryview | LogbrookError:
    try:
        return inspect_batches(data, rules)
    except LogbrookError as error:
        return error
    except Exception:
        # A bug, which must not leave the request without a response.
        _logger.exception("record inspection failed")
        return RequestRefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, "the records could not be inspected")
