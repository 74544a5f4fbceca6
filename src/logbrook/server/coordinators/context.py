"""A shard of a coordinator on this broker: its state, its appends in flight, and the replies that wait for them.

A reply is released when everything appended to the shard before it is committed. If that cannot be committed, or the
shard is unloaded first, it fails with CoordinatorNotAvailableError.
"""

import asyncio
from collections import deque
from enum import Enum, auto
from typing import Any, Generic, TypeVar

from logbrook.core.coordinator import (
    CoordinatorError,
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    CoordinatorShard,
    NotCoordinatorError,
)
from logbrook.model import LogbrookError

S = TypeVar("S", bound=CoordinatorShard[Any])


class ShardState(Enum):
    LOADING = auto()
    ACTIVE = auto()
    # The log could not be read. Requests get CoordinatorLoadingError. It is loaded again after a while; if it is
    # damaged, at the next start, or when this broker is elected again.
    FAILED = auto()
    UNLOADED = auto()


class CoordinatorContext(Generic[S]):
    """A shard with its state and its records in flight. A new one is made for each load of the partition.

    Owned by the coordinator's runtime, on the event loop. `topic` is the name of the internal topic.
    """

    __slots__ = ("drained", "in_flight", "partition", "queued", "replies", "shard", "state", "topic")

    def __init__(self, topic: str, partition: int, shard: S) -> None:
        self.topic = topic
        self.partition = partition
        self.shard = shard
        self.state = ShardState.LOADING
        # Appends that are not committed yet, oldest first.
        self.in_flight: deque[InFlightAppend] = deque()
        # Batches to append when the topic has been created, with their entries in `in_flight`.
        self.queued: deque[tuple[bytes | bytearray, InFlightAppend]] = deque()
        # Replies that wait for other members of a group. They fail when the shard is unloaded.
        self.replies: dict[asyncio.Future[Any], None] = {}
        # Set when the last append in flight of an unloaded shard is done; not set if there was none.
        self.drained = asyncio.Event()

    @property
    def is_active(self) -> bool:
        return self.state is ShardState.ACTIVE

    def unavailable(self, key: str) -> CoordinatorError:
        """Return the error of a request for a key while the shard is not active."""
        return NotCoordinatorError(key) if self.state is ShardState.UNLOADED else CoordinatorLoadingError(key)

    def release(self, future: "asyncio.Future[Any]", result: object) -> None:
        """Complete the reply when everything appended to the shard so far is committed.

        It fails with CoordinatorNotAvailableError if that cannot be committed. A `result` that is a CoordinatorError
        is raised by the future.
        """
        if self.state is ShardState.UNLOADED:
            complete(future, CoordinatorNotAvailableError(self.topic))
        elif self.in_flight:
            self.in_flight[-1].replies.append((future, result))
        else:
            complete(future, result)

    def unload(self) -> None:
        """Drop the shard and fail its replies. Appends that reached the log stay in flight until they are done."""
        self.state = ShardState.UNLOADED
        queued = {append for _, append in self.queued}
        self.queued.clear()
        in_flight = [append for append in self.in_flight if append not in queued]
        for append in self.in_flight:
            append.fail_replies(self.topic)
        self.in_flight.clear()
        self.in_flight.extend(in_flight)
        self.fail_waiting_replies()

    def fail_waiting_replies(self) -> None:
        """Fail the replies that wait for other members of a group."""
        for future in [*self.replies]:
            complete(future, CoordinatorNotAvailableError(self.topic))


class InFlightAppend:
    """An append that is not committed, and the replies that wait for it."""

    __slots__ = ("error", "is_done", "replies")

    def __init__(self) -> None:
        self.is_done = False
        self.error: LogbrookError | None = None
        self.replies: list[tuple[asyncio.Future[Any], object]] = []

    def fail_replies(self, topic: str) -> None:
        for future, _ in self.replies:
            complete(future, CoordinatorNotAvailableError(topic))
        self.replies.clear()


def complete(future: "asyncio.Future[Any]", result: object) -> None:
    """Set the result of a future, or raise it from the future if it is a CoordinatorError; no-op if it is done."""
    if future.done():
        return
    if isinstance(result, CoordinatorError):
        future.set_exception(result)
        # Not every caller awaits the future, for example when its client has disconnected.
        future.exception()
    else:
        future.set_result(result)
