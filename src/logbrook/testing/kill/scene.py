"""What the clients of a load share, and the thread that each of them is."""

import traceback
from abc import ABC, abstractmethod
from random import Random
from threading import Event, Thread
from time import monotonic, monotonic_ns

from logbrook.model import TopicPartition
from logbrook.testing.history import Recorder

TOPIC = "events"


class Scene:
    """The broker's address, the history, and what went wrong with clients. `rng` gives each client one of its own."""

    def __init__(self, address: str, seed: int, partitions: int, isolation: str = "read_committed") -> None:
        self.address = address
        self.seed = seed
        self.isolation = isolation
        self.recorder = Recorder(monotonic_ns)
        self.partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self.problems: list[str] = []
        self.is_up = False
        """Whether the broker answers."""
        self.is_abandoned = False
        """The broker is gone for good: nothing is to be waited for."""
        # How much was, about: threads count without a lock.
        self.acknowledged = 0
        self.idempotent_acknowledged = 0
        self.committed = 0
        self.transactions = 0

    def rng(self, name: str) -> Random:
        return Random(f"{self.seed}/{name}")


class Client(ABC):
    """A thread that uses the broker until it is stopped. What it raises is a problem of the run."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene = scene
        self.name = name
        self.rng = scene.rng(name)
        self.stopping = Event()
        # A client library that hangs must not keep the process from ending.
        self._thread = Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def run(self) -> None:
        """Until `stopping` is set."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()

    def join(self, deadline: float) -> None:
        """That it does not end is a problem, not an error: the history is there to be checked."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, deadline - monotonic()))
        if self._thread.is_alive() and not self.scene.is_abandoned:
            self.scene.problems.append(f"{self.name} did not stop in time")

    def _run(self) -> None:
        try:
            self.run()
        except:  # noqa: E722 - confluent-kafka raises fatal errors as what is no exception at all
            self.scene.problems.append(f"{self.name} failed: {traceback.format_exc()}")
