"""What pipelines have said last, and before that as far as it is still there.

Reading goes on from where it ended the last time, so whoever looks every other second reads what is new alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic

from logbrook.client import EARLIEST, LATEST, Client
from logbrook.client.cluster import Cluster
from logbrook.client.records_reader import RecordsReader
from logbrook.model import TopicPartition
from logbrook.pipelines.report import Report, ReportError, report_in

_KEPT = 300
_READ_WAIT_MS = 500


@dataclass(frozen=True, slots=True)
class Seen:
    """What has been read: of each pipeline the last reports, the newest last, and from where to go on."""

    reports: Mapping[str, tuple[Report, ...]] = field(default_factory=dict)
    topic_id: bytes | None = None
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def latest(self) -> list[Report]:
        """The last report of each pipeline, by name."""
        return [reports[-1] for _, reports in sorted(self.reports.items())]


def read_on(client: Client, topic: str, seen: Seen) -> Seen:
    """`seen` and what was said since. Nothing is there before a pipeline has run.

    Records that are no reports are left out. Raises ClientError, ProtocolError or RecordsError.
    """
    cluster = Cluster(client)
    found = cluster.topics([topic]).get(topic)
    if found is None:
        return Seen()
    partitions = [TopicPartition(topic, number) for number in found.partitions]
    ends = cluster.list_offsets(dict.fromkeys(partitions, LATEST), committed_only=True)
    if found.id != seen.topic_id or any(ends.get(one, 0) < place for one, place in seen.positions.items()):
        # It was deleted, and made again; old clusters have no ids to tell.
        seen = Seen()
    new = [one for one in partitions if one not in seen.positions]
    starts = {**seen.positions, **(cluster.list_offsets(dict.fromkeys(new, EARLIEST)) if new else {})}
    reports = {name: list(said) for name, said in seen.reports.items()}
    positions = _read(client, starts, ends, reports)
    kept = {name: tuple(said[-_KEPT:]) for name, said in reports.items()}
    return Seen(kept, found.id, positions)


def _read(
    client: Client,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    reports: dict[str, list[Report]],
) -> dict[TopicPartition, int]:
    """Adds to `reports`, and returns how far it came."""
    with RecordsReader(client, starts, ends=ends) as reader:
        moved_at_s, before = monotonic(), reader.positions
        # A broker that does not answer is an error of the reader; one that has nothing up to the end has compacted it.
        while not reader.is_done and monotonic() - moved_at_s < client.timeout_s:
            for run in reader.read(_READ_WAIT_MS):
                for record in run.records:
                    _take(record.key, record.value, reports)
            if reader.positions != before:
                moved_at_s, before = monotonic(), reader.positions
        return reader.positions


def _take(key: bytes | None, value: bytes | None, reports: dict[str, list[Report]]) -> None:
    try:
        name = (key or b"").decode()
        report = None if value is None else report_in(value)
    except (UnicodeDecodeError, ReportError):
        return
    if report is None:
        reports.pop(name, None)
    elif report.pipeline == name:
        reports.setdefault(name, []).append(report)
