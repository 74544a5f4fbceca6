"""The last minutes of the cluster, for the charts: asked every two seconds or so, whoever is looking.

Rates come from Kafka's protocol, from how far the ends of logs and the offsets of groups have moved, so that every
cluster has them. A Logbrook broker whose metrics port is known adds what only it can tell.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, time

from logbrook.client.admin import Admin
from logbrook.client.admin_results import ClusterInfo, GroupInfo, TopicInfo
from logbrook.client.errors import BrokerError
from logbrook.console.cluster import ClusterAccess
from logbrook.console.metrics import Metrics, quantile, read_metrics
from logbrook.console.pipelines import Pipelines
from logbrook.console.sentences import sentence_of
from logbrook.model import LogbrookError

_logger = logging.getLogger(__name__)

INTERVAL_S = 2.0
_REST_S_MIN = 0.2
_KEPT = 300
# A cluster may have more groups than can be asked about every time.
_GROUPS_MAX = 200
_GROUPS_EACH_TIME = 20
_GROUPS_EVERY = 5
# Commits come in steps, so that a rate is taken over several samples.
_PROGRESS_S = 30.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Rates since the sample before; None for what is not known."""

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
    """`has_joined`: somebody was a member of it, or is. A pipeline commits without being one."""

    info: GroupInfo
    samples: deque[GroupSample] = field(default_factory=lambda: deque(maxlen=_KEPT))

    @property
    def has_joined(self) -> bool:
        return bool(self.info.members or self.info.protocol_type)

    @property
    def rows_per_s(self) -> float | None:
        """How fast it has gone ahead of late. None until that is known."""
        last = self.samples[-1]
        recent = [one for one in self.samples if last.at_s - one.at_s <= _PROGRESS_S]
        if len(recent) < 2:
            return None
        return max(0.0, (last.committed - recent[0].committed) / (last.at_s - recent[0].at_s))

    @property
    def state(self) -> str:
        """In a word, from what is seen of it."""
        if self.rows_per_s:
            return "running"
        return "up to date" if self.info.lag == 0 else "standing still" if self.rows_per_s == 0 else "unknown"


@dataclass(slots=True)
class _Seen:
    topics: list[TopicInfo]
    groups: list[GroupInfo] | None
    cluster: ClusterInfo


class Sampler:
    """Runs as a task from `start` to `stop`. What it has seen stays when the cluster goes away, with `problem` set."""

    def __init__(
        self,
        access: ClusterAccess,
        metrics_url: str | None,
        interval_s: float,
        pipelines: Pipelines,
    ) -> None:
        self.pipelines = pipelines
        self._access = access
        self._interval_s = interval_s
        self._metrics_url = metrics_url
        self._task: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._ends: dict[tuple[str, int], int] | None = None
        self._ends_at_s = 0.0
        self._metrics: Metrics | None = None
        self._number = 0
        self.samples: deque[Sample] = deque(maxlen=_KEPT)
        self.topics: list[TopicInfo] = []
        self.rates: dict[str, float] = {}
        self.groups: dict[str, GroupHistory] = {}
        self.cluster: ClusterInfo | None = None
        self.totals: dict[str, float] = {}
        self.problem: str | None = None
        self.has_asked = False

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        self._stopped.set()
        if self._task is not None:
            await self._task

    async def sample(self) -> None:
        """Ask once."""
        try:
            with_groups = len(self.groups) <= _GROUPS_EACH_TIME or self._number % _GROUPS_EVERY == 0
            self._number += 1
            seen = await self._access.ask(lambda admin: _look(admin, with_groups))
            url = self._metrics_url
            metrics = None if url is None else await self._access.run(lambda: read_metrics(url))
            await self.pipelines.refresh()
        except LogbrookError as error:
            self.problem, self._ends, self._metrics = sentence_of(error), None, None
            self.rates = {}
        else:
            self.problem = None
            self.cluster, self.topics = seen.cluster, seen.topics
            self._take_rates(seen.topics, metrics)
            if seen.groups is not None:
                self._take_groups(seen.groups)
        self.has_asked = True

    async def _run(self) -> None:
        while not self._stopped.is_set():
            begun_s = monotonic()
            try:
                await self.sample()
            except Exception as error:
                # A bug of ours. Charts that stand still without a word would be worse than to say so and go on.
                _logger.exception("the cluster's answers could not be taken in")
                self.problem, self.has_asked = f"the console has a bug: {error!r}", True
            rest_s = max(_REST_S_MIN, self._interval_s - (monotonic() - begun_s))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), rest_s)

    def _take_rates(self, topics: Iterable[TopicInfo], metrics: Metrics | None) -> None:
        now_s = monotonic()
        ends = {
            (topic.name, one.partition): one.end_offset
            for topic in topics
            for one in topic.partitions
            if one.end_offset is not None
        }
        before, self._ends = self._ends, ends
        passed_s, self._ends_at_s = max(0.001, now_s - self._ends_at_s), now_s
        if before is not None:
            self.rates = {}
            for (topic, partition), end in ends.items():
                # A partition that is new began at 0.
                moved = max(0, end - before.get((topic, partition), 0))
                self.rates[topic] = self.rates.get(topic, 0.0) + moved / passed_s
        self.samples.append(self._sample_of(before is not None, passed_s, metrics))
        self._metrics = metrics
        self.totals = {} if metrics is None else metrics.totals

    def _sample_of(self, has_rates: bool, passed_s: float, metrics: Metrics | None) -> Sample:
        at_ms, old = round(time() * 1000), self._metrics
        messages_in_s = sum(self.rates.values()) if has_rates else None
        if old is None or metrics is None:
            return Sample(at_ms, messages_in_s)

        def rate(name: str) -> float:
            return max(0.0, metrics.totals.get(name, 0.0) - old.totals.get(name, 0.0)) / passed_s

        def quantile_ms(share: float, kind: str) -> float | None:
            after = metrics.histograms.get(kind, {})
            found = quantile(share, old.histograms.get(kind, {}), after)
            return None if found is None else round(1000 * found, 3)

        return Sample(
            at_ms,
            messages_in_s,
            rate("logbrook_topic_messages_out_total"),
            rate("logbrook_topic_in_bytes_total"),
            rate("logbrook_topic_out_bytes_total"),
            quantile_ms(0.5, "Produce"),
            quantile_ms(0.99, "Produce"),
            quantile_ms(0.99, "sync"),
        )

    def _take_groups(self, groups: Iterable[GroupInfo]) -> None:
        at_ms, at_s = round(time() * 1000), monotonic()
        histories = {}
        for info in groups:
            history = self.groups.get(info.group_id) or GroupHistory(info)
            history.info = info
            committed = sum(one.committed_offset or 0 for one in info.partitions)
            history.samples.append(GroupSample(at_ms, at_s, info.lag, committed))
            histories[info.group_id] = history
        self.groups = histories


def _look(admin: Admin, with_groups: bool) -> _Seen:
    return _Seen(admin.topics.all(), _groups(admin) if with_groups else None, admin.describe_cluster())


def _groups(admin: Admin) -> list[GroupInfo]:
    found = []
    for one in admin.groups.all()[:_GROUPS_MAX]:
        try:
            found.append(admin.groups.describe(one.group_id))
        except BrokerError:
            # It has gone away in between, or this user may not look at it.
            continue
    return found
