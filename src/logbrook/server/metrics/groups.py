"""The metrics of consumer groups. There are none while the groups are being read back at the start."""

from collections import Counter
from collections.abc import Iterator

from logbrook.core.groups import GroupState
from logbrook.model import TopicPartition
from logbrook.server.metrics.declaration import LabelValues, Metric, Number, gauges
from logbrook.server.metrics.scrape import Scrape
from logbrook.storage.log import Log


def _states(scrape: Scrape) -> Iterator[tuple[LabelValues, Number]]:
    counts = Counter(group.state for group in scrape.groups)
    for state in GroupState:
        if state is not GroupState.DEAD:
            yield (state.value,), counts[state.value]


def _members(scrape: Scrape) -> Iterator[tuple[LabelValues, Number]]:
    for group in scrape.groups:
        description = scrape.coordinator.describe(group.group_id)
        if description.state != GroupState.DEAD:
            yield (group.group_id,), len(description.members)


def _committed(scrape: Scrape) -> Iterator[tuple[str, TopicPartition, int, Log]]:
    """What groups have committed for partitions that there are."""
    directory = scrape.broker.directory
    for group in scrape.groups:
        for partition, committed in scrape.coordinator.fetch_offsets(group.group_id, None).items():
            if partition in directory:
                yield group.group_id, partition, committed.offset, directory.get(partition)


def _committed_offsets(scrape: Scrape) -> Iterator[tuple[LabelValues, Number]]:
    for group_id, partition, offset, _ in _committed(scrape):
        yield (group_id, *partition), offset


def _lags(scrape: Scrape) -> Iterator[tuple[LabelValues, Number]]:
    for group_id, partition, offset, log in _committed(scrape):
        yield (group_id, *partition), max(0, log.high_watermark - offset)


_LABELS = ("group", "topic", "partition")

GROUPS: tuple[Metric, ...] = (
    gauges("logbrook_groups", "Consumer groups, by state.", ("state",), _states),
    gauges("logbrook_group_members", "Members of the group.", ("group",), _members),
    gauges("logbrook_group_committed_offset", "The offset that the group goes on from.", _LABELS, _committed_offsets),
    gauges(
        "logbrook_group_lag",
        "How far the group is behind: the high watermark minus its committed offset.",
        _LABELS,
        _lags,
    ),
)
