"""Sampling of a cluster: observations through Kafka's protocol, and the rates between two of them.

Records in are counted by how far log end offsets moved, so every cluster has that rate. Bytes, records out and
latencies come from a Logbrook broker's metrics; without them, bytes in are the growth of the logs on disk.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, time

from logbrook.client import BrokerError
from logbrook.client.admin import Admin
from logbrook.client.admin_results import ClusterInfo, GroupInfo, GroupSummary, TopicDescription
from logbrook.client.security import PLAINTEXT_SECURITY, ClientSecurity
from logbrook.model import TopicPartition
from logbrook.monitoring.metrics import SYNC, BrokerMetrics, quantile, scrape

# Describing a group takes several requests; a cluster may have more groups than can be described each time.
DESCRIBED_GROUPS_MAX = 200


@dataclass(frozen=True, slots=True)
class ObservedGroup:
    """A consumer group. `committed` is the sum of its committed offsets; `description` is None unless requested."""

    group_id: str
    state: str
    topics: frozenset[str]
    committed: int
    lag: int | None
    description: GroupInfo | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """State of a cluster at one time; `at_s` is monotonic. `groups` is None if they were not observed."""

    at_s: float
    at_ms: int
    cluster: ClusterInfo
    topics: tuple[TopicDescription, ...]
    groups: tuple[ObservedGroup, ...] | None
    metrics: BrokerMetrics | None

    def end_offsets(self) -> dict[TopicPartition, int]:
        return {
            TopicPartition(topic.name, partition.partition): partition.end_offset
            for topic in self.topics
            for partition in topic.partitions
            if partition.end_offset is not None
        }


@dataclass(frozen=True, slots=True)
class TopicRates:
    """Rates of a topic per second; None if unknown."""

    in_records: float | None = None
    in_bytes: float | None = None
    out_records: float | None = None
    out_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """An observation with the rates since the one before; the first of a sampler has none.

    `groups` are offsets committed per second. Latencies are those of requests since the observation before.
    """

    observation: Observation
    has_rates: bool = False
    topics: Mapping[str, TopicRates] = field(default_factory=dict)
    groups: Mapping[str, float | None] = field(default_factory=dict)
    produce_p50_ms: float | None = None
    produce_p99_ms: float | None = None
    sync_p99_ms: float | None = None

    def total(self, rate: Callable[[TopicRates], float | None]) -> float | None:
        """Return the sum of a rate over all topics, None if it is unknown for all."""
        rates = [value for value in map(rate, self.topics.values()) if value is not None]
        return sum(rates) if rates else None


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """Address of a broker's metrics.

    Those from a guessed address are used only if the broker has the same partitions. It is sent no credentials.
    """

    url: str
    is_guessed: bool = False
    security: ClientSecurity = PLAINTEXT_SECURITY


class ClusterSampler:
    """Computes rates between consecutive observations. Owned by one thread or task; it does no I/O."""

    def __init__(self) -> None:
        self._last: Observation | None = None
        self._committed: dict[str, tuple[float, int]] = {}

    def add(self, observation: Observation) -> ClusterSample:
        last, self._last = self._last, observation
        group_rates = self._group_rates(observation)
        if last is None:
            return ClusterSample(observation, groups=group_rates)
        return ClusterSample(
            observation,
            True,
            _topic_rates(last, observation),
            group_rates,
            _latency_ms(0.5, "Produce", last.metrics, observation.metrics),
            _latency_ms(0.99, "Produce", last.metrics, observation.metrics),
            _latency_ms(0.99, SYNC, last.metrics, observation.metrics),
        )

    def reset(self) -> None:
        """Discard the last observation after the cluster was unreachable: a rate over the gap would be wrong."""
        self._last = None
        self._committed = {}

    def _group_rates(self, observation: Observation) -> dict[str, float | None]:
        rates: dict[str, float | None] = {}
        for group in observation.groups or ():
            before_s, before = self._committed.get(group.group_id, (0.0, None))
            rates[group.group_id] = rate(before, group.committed, observation.at_s - before_s)
        if observation.groups is not None:
            self._committed = {group.group_id: (observation.at_s, group.committed) for group in observation.groups}
        return rates


def observe(
    admin: Admin, source: MetricsSource | None, *, with_groups: bool = True, describe_groups: bool = False
) -> Observation:
    """Observe a cluster now. Blocks; raises ClientError or ProtocolError.

    `describe_groups` adds members and partitions of the first groups, which takes several requests for each.
    """
    cluster = admin.describe_cluster()
    topics = tuple(admin.topics.all())
    groups = None
    if with_groups:
        groups = tuple(_described_groups(admin) if describe_groups else _listed_groups(admin, topics))
    return Observation(monotonic(), round(time() * 1000), cluster, topics, groups, _scraped(source, topics))


def rate(before: float | None, now: float | None, span_s: float) -> float | None:
    """Return the rate of a counter, None if unknown or if it went backwards (a restart, or a deletion)."""
    if before is None or now is None or now < before or span_s <= 0:
        return None
    return (now - before) / span_s


def _topic_rates(last: Observation, now: Observation) -> dict[str, TopicRates]:
    span_s = max(0.001, now.at_s - last.at_s)
    ends_before = last.end_offsets()
    records: dict[str, float] = {}
    for partition, end in now.end_offsets().items():
        # A new partition started at 0.
        moved = max(0, end - ends_before.get(partition, 0))
        records[partition.topic] = records.get(partition.topic, 0.0) + moved / span_s
    sizes_before = {topic.name: topic.size_bytes for topic in last.topics}
    rates = {}
    for topic in now.topics:
        in_bytes = _counter_rate(topic.name, "in_bytes", last, now, span_s)
        if in_bytes is None:
            in_bytes = rate(sizes_before.get(topic.name), topic.size_bytes, span_s)
        rates[topic.name] = TopicRates(
            records.get(topic.name),
            in_bytes,
            _counter_rate(topic.name, "messages_out", last, now, span_s),
            _counter_rate(topic.name, "out_bytes", last, now, span_s),
        )
    return rates


def _counter_rate(topic: str, counter: str, last: Observation, now: Observation, span_s: float) -> float | None:
    if last.metrics is None or now.metrics is None:
        return None
    before = last.metrics.topics.get(topic, {}).get(counter, 0.0)
    return rate(before, now.metrics.topics.get(topic, {}).get(counter, 0.0), span_s)


def _latency_ms(share: float, name: str, last: BrokerMetrics | None, now: BrokerMetrics | None) -> float | None:
    if last is None or now is None:
        return None
    seconds = quantile(share, last.histograms.get(name, {}), now.histograms.get(name, {}))
    return None if seconds is None else round(1000 * seconds, 3)


def _scraped(source: MetricsSource | None, topics: tuple[TopicDescription, ...]) -> BrokerMetrics | None:
    metrics = scrape(source.url, PLAINTEXT_SECURITY if source.is_guessed else source.security) if source else None
    if source is None or metrics is None or not source.is_guessed:
        return metrics
    partitions = [TopicPartition(topic.name, partition.partition) for topic in topics for partition in topic.partitions]
    return metrics if metrics.has_exactly(partitions) else None


def _described_groups(admin: Admin) -> list[ObservedGroup]:
    groups = []
    for summary in admin.groups.all()[:DESCRIBED_GROUPS_MAX]:
        # The group may have been deleted since it was listed, or this user may not describe it.
        with suppress(BrokerError):
            info = admin.groups.describe(summary.group_id)
            topics = frozenset(row.partition.topic for row in info.partitions)
            committed = sum(row.committed_offset or 0 for row in info.partitions)
            groups.append(ObservedGroup(info.group_id, info.state, topics, committed, info.lag, info))
    return groups


def _listed_groups(admin: Admin, topics: tuple[TopicDescription, ...]) -> list[ObservedGroup]:
    """Return all groups; none while the coordinator is loading them."""
    try:
        summaries = admin.groups.all()
    except BrokerError:
        return []
    bounds = {
        TopicPartition(topic.name, partition.partition): (partition.start_offset or 0, partition.end_offset)
        for topic in topics
        for partition in topic.partitions
    }
    return [_listed_group(admin, summary, bounds) for summary in summaries]


def _listed_group(
    admin: Admin, summary: GroupSummary, bounds: Mapping[TopicPartition, tuple[int, int | None]]
) -> ObservedGroup:
    offsets: dict[TopicPartition, int] = {}
    with suppress(BrokerError):
        offsets = {
            partition: committed.offset for partition, committed in admin.groups.committed(summary.group_id).items()
        }
    lags = []
    for partition, offset in offsets.items():
        start, end = bounds.get(partition, (0, None))
        if end is not None:
            lags.append(max(0, end - max(start, offset)))
    topics = frozenset(partition.topic for partition in offsets)
    return ObservedGroup(summary.group_id, summary.state, topics, sum(offsets.values()), sum(lags) if lags else None)
