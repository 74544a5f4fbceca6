"""One scrape: the broker it looks at, and what it need not work out twice.

A scrape takes place in steps, between which requests have their turn, so topics, partitions and groups may come and go
during it. Whoever walks over them walks over a copy.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Protocol

from logbrook.core.groups import GroupCoordinator, GroupListing
from logbrook.core.groups.errors import CoordinatorLoadingError
from logbrook.server.listener import Listener
from logbrook.server.maintenance import Housekeeper
from logbrook.server.probe import ServerProbe
from logbrook.server.services import Services
from logbrook.server.topics import METADATA
from logbrook.storage.environment import Environment
from logbrook.storage.log import Log
from logbrook.storage.log_directory import LogDirectory
from logbrook.storage.probe import StorageProbe

PARTITION_LABELS = ("topic", "partition")


class Observed(Protocol):
    """The broker, as far as it is looked at."""

    is_ready: bool
    directory: LogDirectory
    services: Services
    listener: Listener
    housekeeper: Housekeeper


class Scrape:
    """`started_s` is when the broker was, in seconds since 1970; `uptime_s` how long ago that is."""

    def __init__(self, broker: Observed, started_s: float, uptime_s: float) -> None:
        self.broker = broker
        self.started_s = started_s
        self.uptime_s = uptime_s
        # Known once they were gone through.
        self._logs: list[tuple[str, Log]] | None = None

    @property
    def services(self) -> Services:
        return self.broker.services

    @property
    def probe(self) -> ServerProbe:
        return self.services.probe

    @property
    def environment(self) -> Environment:
        return self.broker.directory.environment

    @property
    def storage(self) -> StorageProbe:
        return self.environment.probe

    @property
    def coordinator(self) -> GroupCoordinator:
        return self.services.groups.coordinator

    @cached_property
    def groups(self) -> list[GroupListing]:
        """None, while they are being read back."""
        try:
            return self.coordinator.list_groups()
        except CoordinatorLoadingError:
            return []

    def logs(self) -> Iterator[tuple[str, Log]]:
        """The logs of all partitions there are, the broker's own among them, with the text of their labels."""
        if self._logs is not None:
            return ((text, log) for text, log in self._logs if not log.is_deleted)
        return self._find_logs()

    def _find_logs(self) -> Iterator[tuple[str, Log]]:
        topics = self.services.topics.metadata.topics
        found: list[tuple[str, Log]] = []
        for log in self.broker.directory:
            topic, number = log.partition
            known = topics.get(topic)
            if log.is_deleted or not (log.partition == METADATA or (known and number < known.partition_count)):
                continue
            one = label_text(PARTITION_LABELS, log.partition), log
            found.append(one)
            yield one
        self._logs = found


def label_text(names: Sequence[str], values: Sequence[object]) -> str:
    """`{name="value",...}`; nothing for no labels."""
    if not names:
        return ""
    return "{" + ",".join([f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True)]) + "}"


def _escape(value: object) -> str:
    return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
