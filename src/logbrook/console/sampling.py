"""State of the cluster that the pages show: the last samples for charts, topics, groups, and pipeline reports.

The numbers come from `logbrook.monitoring`; `ConsoleSampler` runs it as an asyncio task, independent of how many pages
are open, and keeps a bounded history.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, time

from logbrook.client.admin_results import ClusterInfo, GroupInfo, TopicDescription
from logbrook.client.errors import BrokerError
from logbrook.console.cluster import ClusterAccess, describe_error
from logbrook.model import LogbrookError
from logbrook.model.event_log import event_logger
from logbrook.monitoring.sampling import (
    ClusterSample,
    ClusterSampler,
    MetricsSource,
    ObservedGroup,
    TopicRates,
    observe,
)
from logbrook.pipelines.report import REPORTS_TOPIC, PipelineReport
from logbrook.pipelines.report_reader import ReportHistory, read_new_reports

_logger = event_logger(__name__)

INTERVAL_S = 2.0
_PAUSE_S_MIN = 0.2
_SAMPLES_KEPT = 300
# With more groups than this, groups are described only with every fifth sample: each takes several requests.
_GROUPS_EVERY_SAMPLE_MAX = 20
_GROUPS_SAMPLE_INTERVAL = 5
# Commits are infrequent, so the rate of a group is averaged over this time.
_GROUP_RATE_WINDOW_S = 30.0
# Share of the last sample in a topic's average traffic.
_TRAFFIC_WEIGHT = 0.05


@dataclass(frozen=True, slots=True)
class TrafficSample:
    """Cluster-wide rates since the sample before, for the charts; None if unknown."""

    at_ms: int
    messages_in_s: float | None = None
    messages_out_s: float | None = None
    bytes_in_s: float | None = None
    bytes_out_s: float | None = None
    produce_p50_ms: float | None = None
    produce_p99_ms: float | None = None
    sync_p99_ms: float | None = None


@dataclass(frozen=True, slots=True)
class GroupSample:
    at_ms: int
    at_s: float
    lag: int | None
    committed: int


@dataclass(slots=True)
class GroupHistory:
    """A group with its last samples."""

    info: GroupInfo
    samples: deque[GroupSample] = field(default_factory=lambda: deque(maxlen=_SAMPLES_KEPT))

    @property
    def has_joined(self) -> bool:
        """True if the group has or had members. Spark queries commit offsets without joining."""
        return bool(self.info.members or self.info.protocol_type)

    @property
    def rows_per_s(self) -> float | None:
        """Committed offsets per second over the last 30 s, None until there are two samples."""
        last = self.samples[-1]
        recent = [sample for sample in self.samples if last.at_s - sample.at_s <= _GROUP_RATE_WINDOW_S]
        if len(recent) < 2:
            return None
        return max(0.0, (last.committed - recent[0].committed) / (last.at_s - recent[0].at_s))

    @property
    def state(self) -> str:
        """State of a group without members, derived from its progress."""
        if self.rows_per_s:
            return "running"
        return "up to date" if self.info.lag == 0 else "standing still" if self.rows_per_s == 0 else "unknown"


class PipelineReports:
    """The reports that pipelines write to their topic. `problem` says why the topic cannot be read, if so."""

    def __init__(self, access: ClusterAccess, topic: str = REPORTS_TOPIC) -> None:
        self._access = access
        self._topic = topic
        self._history = ReportHistory()
        self.problem: str | None = None

    @property
    def latest(self) -> list[PipelineReport]:
        """The last report of each pipeline, by name."""
        return self._history.latest

    @property
    def queries(self) -> set[str]:
        """Names of all reporting queries, which are also the names of their consumer groups."""
        return {sink.name for report in self._history.latest for sink in report.sinks}

    def history(self, pipeline: str) -> tuple[PipelineReport, ...]:
        """Return the last reports of a pipeline, oldest first."""
        return self._history.reports.get(pipeline, ())

    async def refresh(self) -> None:
        """Read new reports. Raises LogbrookError if the cluster does not respond."""
        history = self._history
        try:
            self._history = await self._access.ask(lambda admin: read_new_reports(admin.client, self._topic, history))
        except BrokerError as error:
            self.problem = describe_error(error)
        else:
            self.problem = None


class ConsoleSampler:
    """Samples the cluster as a task from `start` to `stop`.

    While the cluster does not respond, `problem` says why and the last known state is kept.
    """

    def __init__(
        self, access: ClusterAccess, metrics: MetricsSource | None, interval_s: float, pipelines: PipelineReports
    ) -> None:
        self.pipelines = pipelines
        self._access = access
        self._interval_s = interval_s
        self._metrics = metrics
        self._task: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._sampler = ClusterSampler()
        self._observations = 0
        self.samples: deque[TrafficSample] = deque(maxlen=_SAMPLES_KEPT)
        self.topics: list[TopicDescription] = []
        self.rates: dict[str, float] = {}
        self.topic_rates: Mapping[str, TopicRates] = {}
        # Bytes in and out per second of each topic, averaged over about a minute.
        self.traffic: dict[str, float] = {}
        self.groups: dict[str, GroupHistory] = {}
        self.cluster: ClusterInfo | None = None
        self.gauges: dict[str, float] = {}
        self.problem: str | None = None
        self.has_sampled = False

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        self._stopped.set()
        if self._task is not None:
            await self._task

    async def sample(self) -> None:
        """Take one sample now."""
        with_groups = len(self.groups) <= _GROUPS_EVERY_SAMPLE_MAX or self._observations % _GROUPS_SAMPLE_INTERVAL == 0
        self._observations += 1
        try:
            observation = await self._access.ask(
                lambda admin: observe(admin, self._metrics, with_groups=with_groups, describe_groups=True)
            )
            await self.pipelines.refresh()
        except LogbrookError as error:
            self.problem = describe_error(error)
            self._sampler.reset()
            self.rates, self.topic_rates = {}, {}
        else:
            self.problem = None
            self._keep(self._sampler.add(observation))
            if observation.groups is not None:
                self._keep_groups(observation.groups)
        self.has_sampled = True

    async def _run(self) -> None:
        while not self._stopped.is_set():
            started_s = monotonic()
            try:
                await self.sample()
            except Exception as error:
                # A bug must be visible: charts that silently stop would be taken for an idle cluster.
                _logger.exception("sampling the cluster failed")
                self.problem, self.has_sampled = f"the console has a bug: {error!r}", True
            pause_s = max(_PAUSE_S_MIN, self._interval_s - (monotonic() - started_s))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), pause_s)

    def _keep(self, sample: ClusterSample) -> None:
        observation = sample.observation
        self.cluster, self.topics = observation.cluster, list(observation.topics)
        self.rates = {name: rates.in_records or 0.0 for name, rates in sample.topics.items()}
        self.topic_rates = sample.topics
        self.traffic = average_traffic(self.traffic, sample.topics)
        self.gauges = {} if observation.metrics is None else observation.metrics.gauges
        has_metrics = observation.metrics is not None
        self.samples.append(
            TrafficSample(
                observation.at_ms,
                sum(self.rates.values()) if sample.has_rates else None,
                sample.total(lambda rates: rates.out_records),
                sample.total(lambda rates: rates.in_bytes) if has_metrics else None,
                sample.total(lambda rates: rates.out_bytes),
                sample.produce_p50_ms,
                sample.produce_p99_ms,
                sample.sync_p99_ms,
            )
        )

    def _keep_groups(self, groups: Iterable[ObservedGroup]) -> None:
        at_ms, at_s = now_ms(), monotonic()
        histories = {}
        for group in groups:
            assert group.description is not None
            history = self.groups.get(group.group_id) or GroupHistory(group.description)
            history.info = group.description
            history.samples.append(GroupSample(at_ms, at_s, group.lag, group.committed))
            histories[group.group_id] = history
        self.groups = histories


def average_traffic(before: Mapping[str, float], rates: Mapping[str, TopicRates]) -> dict[str, float]:
    """Return the moving average of each topic's bytes in and out per second, without topics that are gone."""
    average = {}
    for name, topic in rates.items():
        # A cluster whose sizes are unknown has only numbers of records.
        now = (topic.in_bytes or topic.in_records or 0.0) + (topic.out_bytes or topic.out_records or 0.0)
        average[name] = before.get(name, 0.0) * (1 - _TRAFFIC_WEIGHT) + now * _TRAFFIC_WEIGHT
    return average


def busiest_topics(topics: Sequence[TopicDescription], traffic: Mapping[str, float]) -> list[TopicDescription]:
    """Return the topics with the most traffic first; those without any by size, then by name."""
    return sorted(topics, key=lambda topic: (-traffic.get(topic.name, 0.0), -(topic.size_bytes or 0), topic.name))


def now_ms() -> int:
    return round(time() * 1000)
