"""Creation and deletion of the logs of a topic, a few at a time, with the file system's part in threads.

A topic of 10,000 partitions takes as long as the disk takes for its syncs. Meanwhile the event loop serves requests: it
only begins and finishes a step (`storage.log_lifecycle`).
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from logbrook.config import LogConfig
from logbrook.model import TopicPartition
from logbrook.ports import Clock
from logbrook.server.topic_changes import ChangePendingError
from logbrook.storage.data_directories import AnyDirectory
from logbrook.storage.durable_files import IO_FAILURES
from logbrook.storage.errors import StorageOfflineError

# The event loop is busy for about a millisecond per step.
LOGS_PER_STEP = 32
# The garbage collector takes a millisecond or two to visit the objects of so many.
_MANY_LOGS = 256
# The steps of several topics, so that a small one does not wait for a large one.
_THREADS = 4


class TopicLogs:
    """One per broker. Used on its event loop; only `run` of a creation or deletion is called in a thread.

    `on_many_created` is called after every `_MANY_LOGS` logs that were created, to exempt their objects from garbage
    collections. The caller does not cancel a call: a step that has begun is always finished.
    """

    def __init__(self, directory: AnyDirectory, clock: Clock, on_many_created: Callable[[], None]) -> None:
        self._directory = directory
        self._clock = clock
        self._on_many_created = on_many_created
        # Logs created since the last call of `on_many_created`.
        self._created = 0
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="logbrook-topics")
        self._is_stopping = False

    def begin_stop(self) -> None:
        """Let each call make one step more at most; it raises ChangePendingError if that is not enough."""
        self._is_stopping = True

    def stop(self) -> None:
        self._executor.shutdown()

    async def create(self, partitions: Iterable[TopicPartition], config: LogConfig, *, topic_id: str = "") -> None:
        """Create the logs that are missing. Raises StorageError, after which some may exist, or ChangePendingError."""
        for step in self._steps(partition for partition in partitions if partition not in self._directory):
            for member, placed in self._directory.placed(step):
                creation = member.begin_create(placed, config, topic_id=topic_id)
                member.finish_create(creation, await self._run(creation.run))
            self._created += len(step)
            if self._created >= _MANY_LOGS:
                self._created = 0
                self._on_many_created()

    async def delete(self, partitions: Iterable[TopicPartition]) -> None:
        """Delete the logs that exist. Raises StorageError or ChangePendingError."""
        for step in self._steps(partition for partition in partitions if partition in self._directory):
            for member, placed in self._directory.by_member(step):
                deletion = member.begin_delete(placed, self._clock.now_ms())
                member.finish_delete(deletion, await self._run(deletion.run))

    def _steps(self, partitions: Iterator[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
        """Yield the partitions of each step. Raises ChangePendingError after the first one if the broker stops."""
        if step := list(islice(partitions, LOGS_PER_STEP)):
            yield step
        while step := list(islice(partitions, LOGS_PER_STEP)):
            if self._is_stopping:
                raise ChangePendingError(
                    "the broker is stopping; its next start undoes a creation and finishes a deletion"
                )
            yield step

    async def _run(self, work: Callable[[], None]) -> OSError | StorageOfflineError | None:
        """Run a step in a thread, and return its error."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except IO_FAILURES as error:
            return error
        return None
