"""Incremental reading of the reports topic: each call continues at the offsets where the last one ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic

from logbrook.client import EARLIEST, LATEST, Client
from logbrook.client.partition_requests import PartitionRequests
from logbrook.client.records_reader import RecordsReader
from logbrook.model import TopicPartition
from logbrook.pipelines.report import PipelineReport, ReportError, parse_report

_REPORTS_KEPT = 300
_READ_WAIT_MS = 500


@dataclass(frozen=True, slots=True)
class ReportHistory:
    """The last reports of each pipeline, newest last, and the offsets at which to continue. Immutable."""

    reports: Mapping[str, tuple[PipelineReport, ...]] = field(default_factory=dict)
    topic_id: bytes | None = None
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def latest(self) -> list[PipelineReport]:
        """The last report of each pipeline, sorted by name."""
        return [reports[-1] for _, reports in sorted(self.reports.items())]


def read_new_reports(client: Client, topic: str, seen: ReportHistory) -> ReportHistory:
    """Return `seen` with the reports written since; empty if the topic does not exist.

    Invalid records are skipped. Raises ClientError, ProtocolError or RecordsError.
    """
    cluster = PartitionRequests(client)
    metadata = cluster.topics([topic]).get(topic)
    if metadata is None:
        return ReportHistory()
    partitions = [TopicPartition(topic, number) for number in metadata.partitions]
    ends = cluster.list_offsets(dict.fromkeys(partitions, LATEST), committed_only=True)
    if metadata.id != seen.topic_id or any(
        ends.get(partition, 0) < position for partition, position in seen.positions.items()
    ):
        # The topic was recreated. Old clusters have no topic ids, so shrunken logs are checked, too.
        seen = ReportHistory()
    new = [partition for partition in partitions if partition not in seen.positions]
    starts = {**seen.positions, **(cluster.list_offsets(dict.fromkeys(new, EARLIEST)) if new else {})}
    reports = {name: list(known) for name, known in seen.reports.items()}
    positions = _read(client, starts, ends, reports)
    kept = {name: tuple(known[-_REPORTS_KEPT:]) for name, known in reports.items()}
    return ReportHistory(kept, metadata.id, positions)


def _read(
    client: Client,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    reports: dict[str, list[PipelineReport]],
) -> dict[TopicPartition, int]:
    """Append to `reports` and return the next offsets."""
    with RecordsReader(client, starts, ends=ends) as reader:
        progress_at_s, previous = monotonic(), reader.positions
        # If the last records before the end are compacted away, no more records arrive: stop after a timeout.
        while not reader.is_done and monotonic() - progress_at_s < client.timeout_s:
            for run in reader.read(_READ_WAIT_MS):
                for record in run.records:
                    _add_record(record.key, record.value, reports)
            if reader.positions != previous:
                progress_at_s, previous = monotonic(), reader.positions
        return reader.positions


def _add_record(key: bytes | None, value: bytes | None, reports: dict[str, list[PipelineReport]]) -> None:
    try:
        name = (key or b"").decode()
        report = None if value is None else parse_report(value)
    except (UnicodeDecodeError, ReportError):
        return
    if report is None:
        reports.pop(name, None)
    elif report.pipeline == name:
        reports.setdefault(name, []).append(report)
