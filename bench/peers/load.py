"""What a client of any of the systems can be asked to do. It happens in a process of its own: see `worker.py`.

A topic of Kafka's with N partitions is N streams for those that have no partitions. Every partition gets as many
messages as the others, in all systems.
"""

import resource
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from threading import Event

from bench.peers.messages import messages

WAIT_S_MAX = 180.0
RETRY_S = 0.002
TICK_S = 0.001
# The first messages of a paced run pay for connections and caches.
_WARM_UP_SHARE = 0.2


class LoadError(Exception):
    """A message was not acknowledged, or did not come."""


@dataclass(frozen=True)
class Job:
    """To whom, and how much."""

    address: str
    topic: str
    partitions: int = 1
    size: int = 1_000
    codec: str = "none"
    # Whether a message goes to the next partition than the one before, as keys would have it, and not some in a row.
    in_turn: bool = False
    count: int = 1
    rate: int = 0
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


@dataclass
class Spent:
    """When a load ran, by the clock that all processes share, and what it cost the process that made it."""

    messages: int
    started_s: float = 0.0
    ended_s: float = 0.0
    cpu_s: float = 0.0

    def as_json(self) -> dict[str, float]:
        return asdict(self)


class Load(ABC):
    """Each verb is one call over the wire to a worker, and gives back what JSON can hold."""

    def ready(self, job: Job) -> None:
        """Have all that is needed in memory, for a call after this whose time counts."""
        messages(job.size)

    @abstractmethod
    def create(self, job: Job) -> None: ...

    @abstractmethod
    def delete(self, job: Job) -> None: ...

    @abstractmethod
    def produce(self, job: Job) -> Spent:
        """`count` messages as fast as they are taken; over when all are acknowledged. Raises LoadError."""

    @abstractmethod
    def consume(self, job: Job) -> Spent:
        """`count` messages from the beginning. Raises LoadError if they do not come."""

    @abstractmethod
    def acknowledged(self, job: Job) -> dict[str, float]:
        """`count` messages at `rate` a second, one by one: the quantiles of the time from sending to the answer."""

    @abstractmethod
    def send_stamped(self, job: Job) -> None:
        """`count` messages at `rate` a second that say when they were sent."""

    @abstractmethod
    def receive_stamped(self, job: Job) -> dict[str, float]:
        """`count` of them, as they come: the quantiles of the time since they were sent."""

    @abstractmethod
    def wait_for_ack(self, job: Job) -> None:
        """Tries until one message is acknowledged, for a server that is still starting. Raises LoadError."""

    @abstractmethod
    def greet(self, job: Job) -> socket.socket:
        """A new connection that has asked the smallest question and got the answer. Raises OSError."""


@contextmanager
def spending(messages: int) -> Iterator[Spent]:
    spent = Spent(messages)
    spent.started_s, cpu_s = time.monotonic(), _cpu_s()
    yield spent
    spent.ended_s, spent.cpu_s = time.monotonic(), _cpu_s() - cpu_s


def paced(count: int, rate: int) -> Iterator[int]:
    """How many are due, each time some are. A tick is a millisecond, so 10,000 a second come ten at a time."""
    pause = Event()
    started = time.monotonic()
    sent = 0
    while sent < count:
        due = min(count, int((time.monotonic() - started) * rate) + 1)
        if due > sent:
            yield due - sent
            sent = due
        pause.wait(TICK_S)


def stamped(message: bytes) -> bytes:
    return time.monotonic_ns().to_bytes(8, "big") + message[8:]


def age_ms(message: bytes) -> float:
    return (time.monotonic_ns() - int.from_bytes(message[:8], "big")) / 1e6


def quantiles(in_order_of_sending: Sequence[float], took_s: float) -> dict[str, float]:
    """Without those of the warm-up; with the rate that was really reached."""
    kept = sorted(in_order_of_sending[int(len(in_order_of_sending) * _WARM_UP_SHARE) :])
    if not kept:
        raise LoadError("nothing was measured")
    at = {name: kept[min(len(kept) - 1, int(len(kept) * share))] for name, share in QUANTILES.items()}
    return {**at, "rate": len(in_order_of_sending) / took_s}


QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


def _cpu_s() -> float:
    """Of this process and of the tools that it ran."""
    own, tools = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + tools.ru_utime + tools.ru_stime
