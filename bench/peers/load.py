"""The interface of a load: the operations that a client of each system performs, in a worker process (`workers.py`).

For systems without partitions, a topic with N partitions is N streams. In all systems, every partition gets the same
number of messages.
"""

import random
import resource
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from threading import Event

WAIT_S_MAX = 180.0
RETRY_S = 0.002
TICK_S = 0.001
# The first messages of a paced run include connecting and cold caches.
_WARM_UP_SHARE = 0.2
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
# More than a client puts into one batch: a message repeated within a batch would flatter every codec.
_POOL_BYTES = 4_000_000
_EVENTS = ("page_view", "add_to_cart", "checkout", "search", "login")


class LoadError(Exception):
    """A message was not acknowledged or not received, or a client failed."""


@dataclass(frozen=True)
class Job:
    """The target and the amount of one operation."""

    address: str
    topic: str
    partitions: int = 1
    size: int = 1_000
    codec: str = "none"
    # True: messages go to the partitions round-robin, as keys distribute them. False: in runs, as a sticky partitioner.
    in_turn: bool = False
    count: int = 1
    # The number of messages in the topic, if fewer than `count`: a consumer then reads them several times.
    stored: int = 0
    # Connections of the load of small requests, or consumers that read everything at once.
    connections: int = 1
    # The process whose CPU time a load measures itself, where connecting must not count.
    pid: int = 0
    rate: int = 0
    replicas: int = 1
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


@dataclass
class Spent:
    """Start and end of a load by the monotonic clock, which all processes share, and the CPU time of its process."""

    messages: int
    started_s: float = 0.0
    ended_s: float = 0.0
    cpu_s: float = 0.0
    # CPU time of the process `Job.pid` between start and end.
    server_cpu_s: float = 0.0

    @property
    def took_s(self) -> float:
        return self.ended_s - self.started_s

    def as_json(self) -> dict[str, float]:
        return asdict(self)


class Load(ABC):
    """Each method is a verb of the worker protocol; results are representable as JSON."""

    def ready(self, job: Job) -> None:
        """Load everything that the next, timed call needs."""
        messages(job.size)

    @abstractmethod
    def create(self, job: Job) -> None: ...

    @abstractmethod
    def delete(self, job: Job) -> None: ...

    @abstractmethod
    def produce(self, job: Job) -> Spent:
        """Send `count` messages as fast as possible and wait until all are acknowledged. Raises LoadError."""

    @abstractmethod
    def consume(self, job: Job) -> Spent:
        """Read `count` messages from the beginning. Raises LoadError if they do not arrive."""

    def consume_passes(self, job: Job) -> Spent:
        """Read `count` messages, from the beginning again after each `stored` ones, and at least one whole pass."""
        parts = [self.consume(replace(job, count=job.stored)) for _ in range(passes_of(job))]
        return Spent(
            sum(part.messages for part in parts),
            parts[0].started_s,
            parts[-1].ended_s,
            sum(part.cpu_s for part in parts),
        )

    @abstractmethod
    def acknowledged(self, job: Job) -> dict[str, float]:
        """Send `count` messages at `rate` per second; return quantiles of the time to the acknowledgement in ms."""

    @abstractmethod
    def send_stamped(self, job: Job) -> None:
        """Send `count` messages at `rate` per second that contain their send time."""

    @abstractmethod
    def receive_stamped(self, job: Job) -> dict[str, float]:
        """Receive `count` stamped messages; return quantiles of the time since they were sent in ms."""

    @abstractmethod
    def wait_for_ack(self, job: Job) -> None:
        """Retry until one message is acknowledged, for a server that is still starting. Raises LoadError."""

    @abstractmethod
    def connect_and_ping(self, job: Job) -> socket.socket:
        """Return a new connection on which the smallest request has been answered. Raises OSError."""


def passes_of(job: Job) -> int:
    return max(1, round(job.count / job.stored))


@cache
def messages(size: int) -> tuple[bytes, ...]:
    """Return distinct messages of `size` bytes, the same in every run: JSON that zstd shrinks to a third or fourth."""
    generator = random.Random(size)
    return tuple(_message(generator, size) for _ in range(_POOL_BYTES // size))


def _message(generator: random.Random, size: int) -> bytes:
    lines = []
    length = 0
    while length < size:
        number, event, cents = generator.getrandbits(64), generator.choice(_EVENTS), generator.randrange(50_000)
        line = f'{{"id": "{number:016x}", "event": "{event}", "user": {number % 99_991}, "price": {cents / 100}}}\n'
        lines.append(line)
        length += len(line)
    return "".join(lines).encode()[:size]


@contextmanager
def spending(messages: int) -> Iterator[Spent]:
    spent = Spent(messages)
    spent.started_s, cpu_s = time.monotonic(), _cpu_s()
    yield spent
    spent.ended_s, spent.cpu_s = time.monotonic(), _cpu_s() - cpu_s


def paced(count: int, rate: int) -> Iterator[int]:
    """Yield the number of messages that are due, once per millisecond: 10,000 per second are sent ten at a time."""
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


def quantiles(latencies_ms: Sequence[float], took_s: float) -> dict[str, float]:
    """Return quantiles without the warm-up, and the rate that was reached. Latencies are in the order of sending."""
    kept = sorted(latencies_ms[int(len(latencies_ms) * _WARM_UP_SHARE) :])
    if not kept:
        raise LoadError("no latencies were measured")
    at = {name: kept[min(len(kept) - 1, int(len(kept) * share))] for name, share in QUANTILES.items()}
    return {**at, "rate": len(latencies_ms) / took_s}


def _cpu_s() -> float:
    """Return the CPU time of this process and of its finished children."""
    own, tools = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + tools.ru_utime + tools.ru_stime
