"""Sources of records for `consume`: chosen partitions, or those assigned by a consumer group.

With --follow, partitions added to the topics later are read too, and new topics that match a pattern, from their start:
none of their records has been printed yet, wherever reading began elsewhere. And while no broker answers, they
reconnect for as long as it takes.
"""

import select
from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Self, TypeAlias

import typer

from logbrook.cli.failures import describe_network_error
from logbrook.cli.terminal import plural
from logbrook.cli.topic_patterns import TopicSelection
from logbrook.client.admin import Admin
from logbrook.client.client import EARLIEST
from logbrook.client.errors import BrokerError, ClientError, NetworkError
from logbrook.client.group_member import GroupMember
from logbrook.client.offset_specs import LogBounds, OffsetSpec
from logbrook.client.partition_requests import TopicMetadata
from logbrook.client.records_reader import FetchedRun, RecordsReader
from logbrook.client.retry import Retries, RetryPolicy
from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode

_COMMIT_INTERVAL_S = 1.0
_METADATA_INTERVAL_S = 2.0


class PartitionsReader:
    """Reads partitions from one position to another, or without end; also those added to `growing`."""

    def __init__(
        self,
        admin: Admin,
        partitions: Sequence[TopicPartition],
        begin: OffsetSpec,
        end: OffsetSpec | None,
        follow: bool,
        committed_only: bool,
        bytes_max: int,
        growing: TopicSelection | None = None,
    ) -> None:
        self._cluster = admin.cluster
        self._discovery = None if growing is None else _PartitionDiscovery(admin, growing, partitions)
        bounds = LogBounds(admin.cluster, partitions, committed_only=committed_only)
        ends = bounds.ends if end is None else bounds.resolve(end)
        self._reader = RecordsReader(
            admin.client,
            bounds.resolve(begin),
            ends=None if follow else ends,
            committed_only=committed_only,
            bytes_max=bytes_max,
            outages=_OutageReport() if follow else None,
        )
        self._skipped = _SkippedOffsets()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    @property
    def is_done(self) -> bool:
        """True if no more records will come."""
        return self._reader.is_done

    def read(self) -> Sequence[FetchedRun]:
        """Return the next batches, perhaps none."""
        if self._discovery is not None and (added := self._discovery.poll()):
            self._add(self._discovery, added)
        runs = self._reader.read_batches()
        self._skipped.report(self._reader)
        return runs

    def mark_printed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Do nothing: there are no offsets to commit."""

    def _add(self, discovery: "_PartitionDiscovery", added: Sequence[TopicPartition]) -> None:
        try:
            starts = self._cluster.list_offsets(dict.fromkeys(added, EARLIEST))
        except ClientError as error:
            if not error.is_retriable:
                raise
            # A new partition may have no leader yet; the next poll returns it again.
            return
        discovery.partitions = discovery.partitions.union(starts)
        self._reader.add(starts)


class GroupReader:
    """Reads as a member of a group from its committed offsets; commits about once a second and at the end.

    Without `follow` it is done at the log end offsets at the time of the assignment. With it, it keeps trying to reach
    the group's coordinator too: offsets that could not be committed are committed later.
    """

    def __init__(
        self,
        admin: Admin,
        group_id: str,
        selection: TopicSelection,
        begin: OffsetSpec,
        follow: bool,
        committed_only: bool,
        bytes_max: int,
    ) -> None:
        topics = selection.topics()
        metadata = admin.cluster.topics(topics)
        for topic in topics:
            if topic not in metadata:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"looking up topic {topic}")
        self._admin = admin
        self._discovery = _PartitionDiscovery(admin, selection, _partitions_of(metadata))
        self._initial_partitions = self._discovery.partitions
        self._begin = begin
        self._follow = follow
        self._committed_only = committed_only
        self._bytes_max = bytes_max
        self._selection = selection
        timeout_s = admin.client.timeout_s
        retry = RetryPolicy(timeout_s=timeout_s, retriable=_is_answered) if follow else None
        self._member = GroupMember(admin.client, group_id, topics, retry=retry)
        self._reader: RecordsReader | None = None
        # True from the start of a rebalance until this member has its new assignment.
        self._must_join = False
        self._uncommitted: dict[TopicPartition, int] = {}
        self._next_commit_s = 0.0
        self._outages = _OutageReport()
        # Counts the failures to reach the coordinator since the last success.
        self._reconnects: Retries | None = None
        self._skipped = _SkippedOffsets()

    def __enter__(self) -> Self:
        try:
            self._join()
        except BaseException:
            self._member.leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._commit()
        finally:
            self._close_reader()
            self._member.leave()

    @property
    def is_done(self) -> bool:
        return self._reader is not None and self._reader.is_done and not self._follow

    def read(self) -> Sequence[FetchedRun]:
        try:
            self._stay_in_group()
        except NetworkError as error:
            if not self._follow:
                raise
            self._outages.begin(error)
            if self._reconnects is None:
                self._reconnects = Retries(RetryPolicy())
            wait_s = self._reconnects.next_try_at_s(error) - monotonic()
            select.poll().poll(max(0.0, wait_s) * 1000)
            return ()
        self._reconnects = None
        assert self._reader is not None
        runs = self._reader.read_batches()
        self._skipped.report(self._reader)
        return runs

    def mark_printed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the next offsets to print, at most about once a second."""
        self._uncommitted.update(offsets)
        is_reachable = self._reader is not None and not self._reader.is_reconnecting
        if self._uncommitted and is_reachable and monotonic() >= self._next_commit_s:
            try:
                self._commit()
            except NetworkError as error:
                if not self._follow:
                    raise
                self._outages.begin(error)

    def _stay_in_group(self) -> None:
        # The leader of the group rejoins to distribute new partitions, and any member to subscribe to new topics.
        is_looking = self._follow and (self._member.is_leader or self._selection.has_patterns)
        has_new_partitions = is_looking and self._discovery.poll()
        if self._must_join or has_new_partitions or not self._member.heartbeat():
            self._must_join = True
            self._commit()
            self._join()
            self._outages.end()

    def _join(self) -> None:
        self._close_reader()
        topics = self._selection.topics()
        self._discovery.partitions = frozenset(_partitions_of(self._admin.cluster.topics(topics)))
        self._member.subscribe(topics)
        assigned = self._member.join()
        bounds = LogBounds(self._admin.cluster, assigned, committed_only=self._committed_only)
        committed = self._admin.groups.committed(self._member.group_id)
        starts = bounds.resolve(self._begin)
        for partition in assigned:
            if partition in committed:
                starts[partition] = bounds.clamp(partition, committed[partition].offset)
            elif partition not in self._initial_partitions:
                starts[partition] = bounds.starts[partition]
        self._reader = RecordsReader(
            self._admin.client,
            starts,
            ends=None if self._follow else bounds.ends,
            committed_only=self._committed_only,
            bytes_max=self._bytes_max,
            outages=self._outages if self._follow else None,
        )
        self._must_join = False
        if not assigned:
            typer.echo("no partition is assigned to this member: the group has more members than partitions", err=True)

    def _commit(self) -> None:
        self._next_commit_s = monotonic() + _COMMIT_INTERVAL_S
        is_accepted = self._member.commit(self._uncommitted)
        self._uncommitted = {}
        if not is_accepted:
            typer.echo("the group rebalanced before the commit; some records will be read again", err=True)

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()


ConsumeReader: TypeAlias = PartitionsReader | GroupReader


class _PartitionDiscovery:
    """Polls the metadata of topics for partitions that are not in `partitions` yet."""

    def __init__(self, admin: Admin, selection: TopicSelection, partitions: Iterable[TopicPartition]) -> None:
        self._admin = admin
        self._selection = selection
        self.partitions = frozenset(partitions)
        self._next_poll_s = monotonic() + _METADATA_INTERVAL_S

    def poll(self) -> list[TopicPartition]:
        """Return new partitions, at most every 2 s; the same ones until they are added to `partitions`."""
        if monotonic() < self._next_poll_s:
            return []
        self._next_poll_s = monotonic() + _METADATA_INTERVAL_S
        try:
            metadata = self._admin.cluster.topics(self._selection.topics())
        except ClientError as error:
            if not error.is_retriable:
                raise
            # Reading records has its own deadline for a broker that does not respond.
            return []
        return sorted(set(_partitions_of(metadata)) - self.partitions)


class _OutageReport:
    """Reports an outage of the broker once, and that it is over."""

    def __init__(self) -> None:
        self._is_reported = False

    def begin(self, error: NetworkError) -> None:
        if not self._is_reported:
            self._is_reported = True
            typer.echo(f"{describe_network_error(error)}; reconnecting until Ctrl-C", err=True)

    def end(self) -> None:
        if self._is_reported:
            self._is_reported = False
            typer.echo("reconnected", err=True)


class _SkippedOffsets:
    """Reports offsets that were deleted before they could be read."""

    def __init__(self) -> None:
        self._reported: dict[TopicPartition, int] = {}

    def report(self, reader: RecordsReader) -> None:
        for partition, count in reader.lost.items():
            if more := count - self._reported.get(partition, 0):
                self._reported[partition] = count
                typer.echo(f"{plural(more, 'offset')} of {partition} were deleted before they were read", err=True)


def _partitions_of(topics: Mapping[str, TopicMetadata]) -> Iterator[TopicPartition]:
    return (TopicPartition(name, number) for name, metadata in topics.items() for number in metadata.partitions)


def _is_answered(error: ClientError) -> bool:
    """Return True for a retriable error of a broker that answers; others are an outage, which is reported."""
    return error.is_retriable and not isinstance(error, NetworkError)
