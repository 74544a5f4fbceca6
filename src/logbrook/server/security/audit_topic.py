"""The topic `__audit`: audit events as records, for consumers that have the right to read it.

The broker creates it with the first event: never compacted, kept for 90 days unless its settings are changed. Clients
cannot write to it. In a cluster each broker appends to a partition that it leads, so that no event depends on another
broker; the order of events is that of one broker. While a broker leads none, or the disk is full, events wait in a
bounded queue; beyond that they are dropped and counted.
"""

import asyncio
from collections import deque
from contextlib import suppress

from logbrook.core.metadata import TopicExistsError
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.event_log import event_logger
from logbrook.server.log_appender import LogAppender
from logbrook.server.topics import AUDIT, Topics
from logbrook.storage.log import Log

# Partitions of a cluster: enough that each broker leads one.
CLUSTER_PARTITIONS = 12

_SETTINGS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "retention.ms": str(90 * 86_400_000),
    "segment.bytes": str(64 << 20),
}
_QUEUE_MAX = 10_000
_BATCH_EVENTS_MAX = 200
_RETRY_S = 1.0
_STOP_S_MAX = 2.0

_logger = event_logger(__name__)


class AuditTopic:
    """One per broker, on the event loop. Lines are queued; a task of its own appends them."""

    def __init__(
        self, topics: Topics, appender: LogAppender, loop: asyncio.AbstractEventLoop, node_id: int, partition_count: int
    ) -> None:
        self.dropped = 0
        self._topics = topics
        self._appender = appender
        self._loop = loop
        self._key = str(node_id).encode()
        self._partition_count = partition_count
        self._lines: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._is_failing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._loop.create_task(self._run())

    def write(self, line: bytes) -> None:
        """Queue a line, which ends with a line feed; drop it if the queue is full."""
        if len(self._lines) >= _QUEUE_MAX:
            self.dropped += 1
            return
        self._lines.append(line)
        self._wake.set()

    def reopen(self) -> None:
        """There is nothing to open again."""

    async def stop(self) -> None:
        """Append what is queued, if that is possible soon."""
        if self._task is None:
            return
        self._stopping.set()
        self._wake.set()
        await asyncio.wait([self._task], timeout=_STOP_S_MAX)
        self._task.cancel()
        self.dropped += len(self._lines)

    async def _run(self) -> None:
        while not self._stopping.is_set():
            await self._wake.wait()
            self._wake.clear()
            while self._lines:
                try:
                    log = await self._log()
                    if log is not None:
                        await self._append(log)
                        self._is_failing = False
                        continue
                    self._report("this broker leads no partition of the topic")
                except LogbrookError as error:
                    self._report(error)
                if await self._pause():
                    return

    async def _append(self, log: Log) -> None:
        """Append the oldest events. Raises LogbrookError."""
        lines = [line.rstrip(b"\n") for line, _ in zip(self._lines, range(_BATCH_EVENTS_MAX), strict=False)]
        await self._appender.append_durably(log, self._appender.batch_of([(self._key, line) for line in lines]))
        for _ in lines:
            self._lines.popleft()

    async def _log(self) -> Log | None:
        """Return the log of a partition that this broker leads, None if there is none. Raises LogbrookError."""
        topic = self._topics.metadata.topics.get(AUDIT)
        if topic is None or topic.is_hidden:
            # Another broker of the cluster may create it at the same time.
            with suppress(TopicExistsError):
                await self._topics.create(AUDIT, self._partition_count, _SETTINGS)
            topic = self._topics.metadata.topic(AUDIT)
        partitions = [TopicPartition(AUDIT, number) for number in range(topic.partition_count)]
        led = next((partition for partition in partitions if self._topics.leads(partition)), None)
        return None if led is None else self._topics.log(led)

    def _report(self, error: object) -> None:
        if not self._is_failing:
            _logger.warning("audit topic not written", topic=AUDIT, error=error)
        self._is_failing = True

    async def _pause(self) -> bool:
        """Wait before the next attempt. Returns True if the broker stops."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_RETRY_S):
                await self._stopping.wait()
        return self._stopping.is_set()
