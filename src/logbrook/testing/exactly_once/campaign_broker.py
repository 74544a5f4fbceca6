"""Brokers of a campaign: Logbrook inside the process or in its own, or another server of Kafka's protocol."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from logbrook.client import Client, RetryPolicy
from logbrook.testing.broker import Broker
from logbrook.testing.kill.broker_process import BrokerProcess
from logbrook.testing.processes import free_port
from logbrook.testing.reaper import Reaper

_READY_S_MAX = 120.0


class CampaignBroker(Protocol):
    """A broker with data of its own; not running initially."""

    @property
    def bootstrap_servers(self) -> str: ...

    def start(self) -> None:
        """Start it, or start it again at the same address with its data. Returns when it answers."""

    def kill(self) -> None:
        """Kill it and wait for its exit. Does nothing if it is not running."""


# Creates a broker that keeps its data in the directory. The reaper ends it if the campaign's process dies.
BrokerFactory = Callable[[Path, Reaper], CampaignBroker]


class BrokerInProcess:
    """Logbrook inside this process, which starts in milliseconds but cannot be killed: stopping it removes its data."""

    def __init__(self, directory: Path, reaper: Reaper) -> None:  # noqa: ARG002 - it needs neither
        self._broker = Broker()

    @property
    def bootstrap_servers(self) -> str:
        return self._broker.bootstrap_servers

    def start(self) -> None:
        self._broker.start()

    def kill(self) -> None:
        self._broker.stop()


class RestartableBroker:
    """Logbrook in its own process."""

    def __init__(self, directory: Path, reaper: Reaper) -> None:
        log = str(directory / "log")
        self._process = BrokerProcess(str(directory / "data"), free_port(), log, ["--metrics", ""], reaper)

    @property
    def bootstrap_servers(self) -> str:
        return self._process.address

    def start(self) -> None:
        self._process.start()
        self._process.wait_until_ready(_READY_S_MAX)

    def kill(self) -> None:
        self._process.end()


def create_topics(servers: str, topics: Mapping[str, int]) -> None:
    """Create topics with these numbers of partitions."""
    with Client(servers) as client:
        for name, partitions in topics.items():
            RetryPolicy(timeout_s=_READY_S_MAX).run(partial(client.create_topic, name, partitions))
