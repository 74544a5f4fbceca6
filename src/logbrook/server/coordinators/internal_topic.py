"""The compacted topic of a coordinator: `__consumer_offsets` or `__transaction_state`."""

import asyncio
from array import array
from collections.abc import AsyncIterator
from contextlib import suppress

from logbrook.core.metadata import TopicExistsError
from logbrook.model import TopicPartition
from logbrook.records.batch import BatchHeader, check_batch, iter_headers
from logbrook.records.errors import CorruptBatchError
from logbrook.server.topics import Topics
from logbrook.storage.errors import CorruptLogError
from logbrook.storage.log import Log

_SETTINGS = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": str(100 << 20),
    "max.message.bytes": str(16 << 20),
}
_LOAD_BYTES = 256 * 1024


class InternalTopic:
    """Created with the first record. Keys are mapped to partitions as Kafka does it.

    An existing topic keeps its number of partitions; `new_partition_count` is the number of a topic to be created.
    """

    def __init__(self, topics: Topics, name: str, new_partition_count: int) -> None:
        self.name = name
        self._topics = topics
        self._creating = asyncio.Lock()
        self._new_partition_count = new_partition_count

    @property
    def partition_count(self) -> int:
        topic = self._topics.metadata.topics.get(self.name)
        return self._new_partition_count if topic is None else topic.partition_count

    @property
    def exists(self) -> bool:
        topic = self._topics.metadata.topics.get(self.name)
        return topic is not None and not topic.is_hidden

    async def create(self) -> None:
        """Create the topic unless it exists. Raises LogbrookError."""
        async with self._creating:
            if not self.exists:
                # Another broker of the cluster may create it at the same time.
                with suppress(TopicExistsError):
                    await self._topics.create(self.name, self.partition_count, _SETTINGS)

    def partition_for(self, key: str) -> int:
        return 0 if self.partition_count == 1 else (java_hash(key) & 0x7FFF_FFFF) % self.partition_count

    def log(self, partition: int) -> Log:
        """Raises TopicNotFoundError."""
        return self._topics.log(TopicPartition(self.name, partition))

    async def batches(self, partition: int) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        """Yield the committed batches of a partition, letting other tasks run in between.

        A replica with a damaged batch is quarantined, so that a healthy one takes over. A single node's log is not: it
        still takes markers, without which transactions could not end. Raises LogbrookError.
        """
        log = self.log(partition)
        offset = log.log_start_offset
        for part in log.read_range(offset, log.high_watermark, _LOAD_BYTES):
            try:
                for position, header in iter_headers(part.data):
                    # A flipped bit can decode as another valid offset.
                    check_batch(part.data, position, part.length)
                    yield header, part.data[position : position + header.size]
                    offset = header.next_offset
            except CorruptBatchError as error:
                damage = CorruptLogError(log.partition, part.file, part.position, offset, str(error))
                if log.is_replica:
                    log.quarantine(damage)
                raise damage from error
            await asyncio.sleep(0)


def java_hash(text: str) -> int:
    """Java's String.hashCode, as an unsigned integer: a hash over UTF-16 code units."""
    value = 0
    units = array("H", text.encode("utf-16-le", "surrogatepass"))
    for unit in units:
        value = (31 * value + unit) & 0xFFFF_FFFF
    return value
