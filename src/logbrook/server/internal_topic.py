"""A compacted topic in which a coordinator keeps its state: created with the first record, read back at start."""

import asyncio
from collections.abc import AsyncIterator

from logbrook.model import TopicPartition
from logbrook.records.batch import BatchHeader, check_batch, iter_headers
from logbrook.server.topics import Topics
from logbrook.storage.log import Log

_SETTINGS = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": str(100 << 20),
    "max.message.bytes": str(16 << 20),
}
_LOAD_BYTES = 256 * 1024


class InternalTopic:
    """One per coordinator. Keys, such as a group's id, are spread over the partitions as Kafka does it."""

    def __init__(self, topics: Topics, name: str, partition_count: int) -> None:
        self.name = name
        self._topics = topics
        self._partition_count = partition_count
        self._creating = asyncio.Lock()

    @property
    def exists(self) -> bool:
        return self.name in self._topics.metadata.topics

    async def create(self) -> None:
        """Make the topic, unless it is there. Raises LogbrookError."""
        async with self._creating:
            if not self.exists:
                await self._topics.create(self.name, self._partition_count, _SETTINGS)

    def partition_of(self, key: str) -> TopicPartition:
        count = self._topics.metadata.topic(self.name).partition_count if self.exists else self._partition_count
        return TopicPartition(self.name, (java_hash(key) & 0x7FFF_FFFF) % count)

    def log_of(self, key: str) -> Log:
        """Raises TopicNotFoundError."""
        return self._topics.log(self.partition_of(key))

    async def batches(self) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        """Everything in the topic that is committed, in order, a little at a time. Raises LogbrookError."""
        if not self.exists:
            return
        for partition in self._topics.metadata.topic(self.name).partitions:
            log = self._topics.log(partition)
            for part in log.read_range(log.log_start_offset, log.high_watermark, _LOAD_BYTES):
                for position, header in iter_headers(part.data):
                    # A flipped bit may well be another offset.
                    check_batch(part.data, position, part.length)
                    yield header, part.data[position : position + header.size]
                await asyncio.sleep(0)


def java_hash(text: str) -> int:
    """Java's String.hashCode, by which Kafka spreads groups over the partitions."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[position : position + 2], "big")) & 0xFFFF_FFFF
    return value
