"""One scrape of a running broker, and what opens the pages of metrics.

Requests are served between the steps of a scrape, so topics, partitions and groups may appear and disappear during it.
Iterate over copies.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from functools import cached_property
from typing import Protocol, TypeAlias

from logbrook.core.coordinator import CoordinatorLoadingError
from logbrook.core.groups.messages import GroupListing
from logbrook.server.listener import Listener
from logbrook.server.maintenance import MaintenanceRunner
from logbrook.server.probe import ServerProbe
from logbrook.server.services import Services
from logbrook.server.topics import METADATA
from logbrook.storage.data_directories import AnyDirectory
from logbrook.storage.environment import Environment
from logbrook.storage.log import Log
from logbrook.storage.probe import StorageProbe

PARTITION_LABELS = ("topic", "partition")


class RunningBroker(Protocol):
    """The parts of a started broker that metrics, the HTTP operations and the JSON protocol use."""

    is_ready: bool
    directory: AnyDirectory
    services: Services
    listener: Listener
    maintenance: MaintenanceRunner


class Scrape:
    """The source of the values of one page. `started_s`: the broker's start, in seconds since 1970."""

    def __init__(self, broker: RunningBroker, started_s: float, uptime_s: float) -> None:
        self.broker = broker
        self.started_s = started_s
        self.uptime_s = uptime_s
        # Results that several metrics are read from, by their type.
        self.counted: dict[type, object] = {}
        # Set once all logs were iterated over.
        self._logs: list[tuple[str, Log]] | None = None

    @property
    def services(self) -> Services:
        return self.broker.services

    @property
    def probe(self) -> ServerProbe:
        return self.services.probe

    @property
    def environments(self) -> list[Environment]:
        """The environments of all data directories."""
        return [member.environment for member in self.broker.directory.members]

    @property
    def storage(self) -> StorageProbe:
        return self.environments[0].probe

    @cached_property
    def groups(self) -> list[GroupListing]:
        """All groups; none while they are being loaded."""
        try:
            return self.services.groups.list_groups()
        except CoordinatorLoadingError:
            return []

    def logs(self) -> Iterator[tuple[str, Log]]:
        """Iterate over the logs of all existing partitions, `__cluster_metadata` included, with their label text."""
        if self._logs is not None:
            return ((text, log) for text, log in self._logs if not log.is_deleted)
        return self._find_logs()

    def _find_logs(self) -> Iterator[tuple[str, Log]]:
        topics = self.services.topics.metadata.topics
        logs: list[tuple[str, Log]] = []
        for log in self.broker.directory:
            name, number = log.partition
            topic = topics.get(name)
            if log.is_deleted or not (
                log.partition == METADATA or (topic and not topic.is_hidden and number < topic.partition_count)
            ):
                continue
            labelled = label_text(PARTITION_LABELS, log.partition), log
            logs.append(labelled)
            yield labelled
        self._logs = logs


Page: TypeAlias = Callable[[Scrape, Callable[[], float]], AsyncGenerator[bytes, None]]


class MetricsPages:
    """Opens pages of metrics. Created at the broker's start, from which its uptime is counted."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        self._clock = broker.services.clock
        self._started_s = self._clock.now_ms() / 1000
        self._started_monotonic_s = self._clock.monotonic_s()
        self._page: Page | None = None

    async def open(self) -> AsyncGenerator[bytes, None]:
        """Return a page of the current values, in pieces of whole lines."""
        if self._page is None:
            # Imported on first use, in a thread: it keeps the start short and does not block the event loop.
            self._page = await asyncio.to_thread(_import_page)
        now_s = self._clock.monotonic_s
        return self._page(Scrape(self._broker, self._started_s, now_s() - self._started_monotonic_s), now_s)


def _import_page() -> Page:
    from logbrook.server.metrics.exposition import page  # noqa: PLC0415 - see above

    return page


def label_text(names: Sequence[str], values: Sequence[object]) -> str:
    """Return `{name="value",...}`, or an empty string for no labels."""
    if not names:
        return ""
    return "{" + ",".join([f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True)]) + "}"


def _escape(value: object) -> str:
    return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
