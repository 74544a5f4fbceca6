"""What a cluster does, from one look at it to the next.

Records in are counted by how far the ends of logs moved, which any cluster tells. Bytes, and all that goes out, are
from the broker's metrics where they can be reached; without them bytes in are what logs have grown by.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from time import monotonic, time
from typing import Any

from logbrook.cli.top_metrics import TopicTraffic, read_traffic
from logbrook.client import BrokerError
from logbrook.client.admin import Admin
from logbrook.client.admin_results import GroupSummary, TopicInfo
from logbrook.model import TopicPartition
from logbrook.protocol.errors import UnsupportedApiError, UnsupportedVersionError


@dataclass(frozen=True)
class TopicRow:
    """What is not known is None."""

    topic: str
    internal: bool
    partitions: int
    records: int | None
    size_bytes: int | None
    in_records_per_s: float | None = None
    in_bytes_per_s: float | None = None
    out_records_per_s: float | None = None
    out_bytes_per_s: float | None = None


@dataclass(frozen=True)
class GroupRow:
    group: str
    state: str
    topics: int
    lag: int | None
    read_per_s: float | None = None


@dataclass(frozen=True)
class DiskRow:
    """The disk of a broker; an old one does not tell (KIP-827)."""

    broker: int
    path: str
    total_bytes: int | None
    usable_bytes: int | None


@dataclass(frozen=True)
class View:
    """One look. `error` is why there could not be another one, and the rest is as it was before."""

    at_s: float = 0.0
    cluster_id: str | None = None
    brokers: int = 0
    topics: tuple[TopicRow, ...] = ()
    groups: tuple[GroupRow, ...] = ()
    has_metrics: bool = False
    has_rates: bool = False
    disks: tuple[DiskRow, ...] = ()
    error: str | None = None

    @property
    def usable_bytes(self) -> int | None:
        known = [one.usable_bytes for one in self.disks if one.usable_bytes is not None]
        return sum(known) if known else None

    def total(self, number: Callable[[TopicRow], float | None]) -> float | None:
        known = [one for one in map(number, self.topics) if one is not None]
        return sum(known) if known else None

    def form(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "time": round(self.at_s * 1000),
            "cluster_id": self.cluster_id,
            "brokers": self.brokers,
            "metrics": self.has_metrics,
            "error": self.error,
            "topics": [asdict(one) for one in self.topics],
            "groups": [asdict(one) for one in self.groups],
            "disks": [asdict(one) for one in self.disks],
        }


@dataclass(frozen=True)
class _Look:
    """The numbers that only mean something beside those of the look before."""

    at_s: float
    ends: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    read: Mapping[str, int] = field(default_factory=dict)
    traffic: TopicTraffic | None = None


class Sampler:
    """Looks at a cluster through `admin`. `metrics_url` is where its metrics may be; if it `is_guessed`, they are
    believed only if they speak of the same partitions."""

    def __init__(self, admin: Admin, metrics_url: str | None, *, is_guessed: bool) -> None:
        self._admin = admin
        self._metrics_url = metrics_url
        self._is_guessed = is_guessed
        self._last: _Look | None = None

    def look(self) -> View:
        """Raises ClientError or ProtocolError."""
        cluster = self._admin.describe_cluster()
        topics = self._admin.topics.all()
        traffic = self._traffic(topics)
        bounds = {
            TopicPartition(topic.name, one.partition): (one.start_offset or 0, one.end_offset)
            for topic in topics
            for one in topic.partitions
        }
        groups = {one.group_id: (one, self._committed(one)) for one in self._groups()}
        look = _Look(
            monotonic(),
            {one.name: sum(each.end_offset or 0 for each in one.partitions) for one in topics},
            {one.name: one.size_bytes for one in topics if one.size_bytes is not None},
            {name: sum(committed.values()) for name, (_, committed) in groups.items()},
            traffic,
        )
        last, self._last = self._last, look
        return View(
            time(),
            cluster.cluster_id,
            len(cluster.brokers),
            tuple(_topic_row(one, last, look) for one in topics),
            tuple(_group_row(one, committed, bounds, last, look) for one, committed in groups.values()),
            traffic is not None,
            last is not None,
            self._disks(),
        )

    def _disks(self) -> tuple[DiskRow, ...]:
        """None where the cluster does not tell this user."""
        try:
            directories = self._admin.log_directories()
        except (BrokerError, UnsupportedApiError, UnsupportedVersionError):
            return ()
        return tuple(DiskRow(one.broker_id, one.path, one.total_bytes, one.usable_bytes) for one in directories)

    def _traffic(self, topics: list[TopicInfo]) -> TopicTraffic | None:
        traffic = read_traffic(self._metrics_url) if self._metrics_url else None
        if traffic is None or not self._is_guessed:
            return traffic
        partitions = [TopicPartition(topic.name, one.partition) for topic in topics for one in topic.partitions]
        return traffic if traffic.is_of(partitions) else None

    def _groups(self) -> list[GroupSummary]:
        """None while the coordinator reads them back."""
        try:
            return self._admin.groups.all()
        except BrokerError:
            return []

    def _committed(self, group: GroupSummary) -> dict[TopicPartition, int]:
        with suppress(BrokerError):
            return {one: committed.offset for one, committed in self._admin.groups.committed(group.group_id).items()}
        return {}


def _topic_row(topic: TopicInfo, last: _Look | None, look: _Look) -> TopicRow:
    name = topic.name
    row = TopicRow(name, topic.is_internal, len(topic.partitions), topic.offsets, topic.size_bytes)
    if last is None:
        return row
    span_s = look.at_s - last.at_s
    before = last.traffic.by_topic.get(name, {}) if last.traffic else None
    now = look.traffic.by_topic.get(name, {}) if look.traffic else None

    def counted(counter: str) -> float | None:
        if before is None or now is None:
            return None
        return _rate(before.get(counter, 0.0), now.get(counter, 0.0), span_s)

    in_bytes = counted("in_bytes")
    if in_bytes is None:
        in_bytes = _rate(last.sizes.get(name), look.sizes.get(name), span_s)
    return TopicRow(
        name,
        topic.is_internal,
        row.partitions,
        row.records,
        row.size_bytes,
        _rate(last.ends.get(name), look.ends.get(name), span_s),
        in_bytes,
        counted("messages_out"),
        counted("out_bytes"),
    )


def _group_row(
    group: GroupSummary,
    committed: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, tuple[int, int | None]],
    last: _Look | None,
    look: _Look,
) -> GroupRow:
    lags = []
    for one, offset in committed.items():
        start, end = bounds.get(one, (0, None))
        if end is not None:
            lags.append(max(0, end - max(start, offset)))
    name = group.group_id
    read_per_s = _rate(last.read.get(name), look.read.get(name), look.at_s - last.at_s) if last else None
    return GroupRow(name, group.state, len({one.topic for one in committed}), sum(lags) if lags else None, read_per_s)


def _rate(before: float | None, now: float | None, span_s: float) -> float | None:
    """None for what went backwards: it began anew, or something was removed."""
    if before is None or now is None or now < before or span_s <= 0:
        return None
    return (now - before) / span_s
