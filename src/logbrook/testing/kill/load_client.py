"""The base class of the clients of a load, the state they share, and the values they write."""

import traceback
from abc import ABC, abstractmethod
from random import Random
from threading import Event, Thread
from time import monotonic, monotonic_ns
from typing import NamedTuple

from logbrook.model import TopicPartition
from logbrook.testing.history import Recorder

TOPIC = "events"
_SEPARATOR = b"|"


class Pace(NamedTuple):
    """The rate of writers: the largest number of records that are sent at once, and the mean pause after them."""

    burst_max: int = 40
    pause_s: float = 0.0


class LoadState:
    """Shared by all clients of a run: the broker's address, the history, and the problems of clients."""

    def __init__(
        self, address: str, seed: int, partitions: int, isolation: str = "read_committed", pace: Pace | None = None
    ) -> None:
        self.address = address
        self.seed = seed
        self.isolation = isolation
        self.pace = pace or Pace()
        self.recorder = Recorder(monotonic_ns)
        self.partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self.problems: list[str] = []
        self.is_up = False
        """True while the broker is ready."""
        self.is_abandoned = False
        """True once the broker will not be restarted and clients must not wait for it."""
        # Approximate progress counters: incremented by many threads without a lock.
        self.acknowledged = 0
        self.idempotent_acknowledged = 0
        self.committed = 0
        self.transactions = 0

    def rng(self, name: str) -> Random:
        return Random(f"{self.seed}/{name}")


class LoadClient(ABC):
    """A thread that uses the broker until it is stopped. An exception in it is a problem of the run."""

    def __init__(self, state: LoadState, name: str) -> None:
        self.state = state
        self.name = name
        self.rng = state.rng(name)
        self.stopping = Event()
        # A client library that hangs must not keep the process from ending.
        self._thread = Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def run(self) -> None:
        """Use the broker until `stopping` is set."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()

    def join(self, deadline: float) -> None:
        """Wait for the thread. A timeout is recorded as a problem; the history can still be checked."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, deadline - monotonic()))
        if self._thread.is_alive() and not self.state.is_abandoned:
            self.state.problems.append(f"{self.name} did not stop in time")

    def _run(self) -> None:
        try:
            self.run()
        except:  # noqa: E722 - confluent-kafka raises some fatal errors as non-exceptions
            self.state.problems.append(f"{self.name} failed: {traceback.format_exc()}")


def payload(value: str, length: int) -> bytes:
    """Return the unique value, padded with itself to `length` bytes, so that damage can be detected."""
    head = value.encode() + _SEPARATOR
    return head + (head * (length // len(head) + 1))[: max(0, length - len(head))]


def value_of(data: bytes | None) -> str:
    """Return the value of a payload; for damaged bytes, a text that no producer sent."""
    if data is None:
        return "no value"
    value = data.partition(_SEPARATOR)[0].decode(errors="replace")
    return value if payload(value, len(data)) == data else f"damaged bytes starting with {data[:40]!r}"
