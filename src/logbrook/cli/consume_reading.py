"""What `consume` reads: partitions that it was told, or those that a group gives it.

Who follows topics hears of partitions that are added to them. These are read from their start, wherever the others
began: nobody has seen what is in them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Protocol, Self

import typer

from logbrook.cli.output import plural
from logbrook.client.admin import Admin
from logbrook.client.client import EARLIEST
from logbrook.client.cluster import TopicInfo
from logbrook.client.errors import BrokerError, ClientError
from logbrook.client.group_member import GroupMember
from logbrook.client.positions import Position, Positions
from logbrook.client.records_reader import RecordRun, RecordsReader
from logbrook.client.retrying import is_retriable
from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode

_COMMIT_S = 1.0
_LOOK_S = 2.0


class Reading(Protocol):
    """Something to read from, in a `with`."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to come."""
        ...

    def read(self) -> Sequence[RecordRun]:
        """What has come, perhaps nothing."""
        ...

    def printed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Up to where each partition has been printed."""
        ...


class _Growth:
    """Looks every now and then for partitions that topics did not have before."""

    def __init__(self, admin: Admin, topics: Sequence[str], known: Iterable[TopicPartition]) -> None:
        self._admin = admin
        self._topics = topics
        self.known = frozenset(known)
        self._look_at_s = monotonic() + _LOOK_S

    def added(self) -> list[TopicPartition]:
        """Those that are there and not known. The same until `known` has them."""
        if monotonic() < self._look_at_s:
            return []
        self._look_at_s = monotonic() + _LOOK_S
        try:
            found = self._admin.cluster.topics(self._topics)
        except ClientError as error:
            if not is_retriable(error):
                raise
            # Whoever reads finds out how long that lasts.
            return []
        return sorted(set(_every(found)) - self.known)


class PlainReading:
    """From a place to another, or for ever; then with what is added to `growing` topics."""

    def __init__(
        self,
        admin: Admin,
        partitions: Sequence[TopicPartition],
        begin: Position,
        end: Position | None,
        follow: bool,
        committed_only: bool,
        bytes_max: int,
        growing: Sequence[str] = (),
    ) -> None:
        self._cluster = admin.cluster
        self._growth = _Growth(admin, growing, partitions) if growing else None
        positions = Positions(admin.cluster, partitions, committed_only=committed_only)
        ends = positions.ends if end is None else positions.offsets(end)
        self._reader = RecordsReader(
            admin.client,
            positions.offsets(begin),
            ends=None if follow else ends,
            committed_only=committed_only,
            bytes_max=bytes_max,
        )
        self._lost = _Lost()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    @property
    def is_done(self) -> bool:
        return self._reader.is_done

    def read(self) -> Sequence[RecordRun]:
        if self._growth is not None and (added := self._growth.added()):
            self._add(self._growth, added)
        runs = self._reader.read()
        self._lost.tell(self._reader)
        return runs

    def printed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Nobody is to be told."""

    def _add(self, growth: _Growth, added: Sequence[TopicPartition]) -> None:
        try:
            starts = self._cluster.list_offsets(dict.fromkeys(added, EARLIEST))
        except ClientError as error:
            if not is_retriable(error):
                raise
            # One that has just been made may have no leader yet; it is looked for again.
            return
        growth.known = growth.known.union(starts)
        self._reader.add(starts)


class GroupReading:
    """As a member of a group, from where the group is; what is printed is committed about once a second and at the end.

    Without `follow` it is done at what was the end when the partitions were given to it.
    """

    def __init__(
        self,
        admin: Admin,
        group_id: str,
        topics: Sequence[str],
        begin: Position,
        follow: bool,
        committed_only: bool,
        bytes_max: int,
    ) -> None:
        found = admin.cluster.topics(topics)
        for topic in topics:
            if topic not in found:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"looking up topic {topic}")
        self._admin = admin
        self._growth = _Growth(admin, topics, _every(found))
        self._first = self._growth.known
        self._begin = begin
        self._follow = follow
        self._committed_only = committed_only
        self._bytes_max = bytes_max
        self._topics = topics
        self._member = GroupMember(admin.client, group_id, topics)
        self._reader: RecordsReader | None = None
        self._uncommitted: dict[TopicPartition, int] = {}
        self._commit_at_s = 0.0
        self._lost = _Lost()

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

    def read(self) -> Sequence[RecordRun]:
        is_grown = self._follow and self._member.is_leader and self._growth.added()
        if is_grown or not self._member.heartbeat():
            self._commit()
            self._join()
        assert self._reader is not None
        runs = self._reader.read()
        self._lost.tell(self._reader)
        return runs

    def printed(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._uncommitted.update(offsets)
        if self._uncommitted and monotonic() >= self._commit_at_s:
            self._commit()

    def _join(self) -> None:
        self._close_reader()
        self._growth.known = frozenset(_every(self._admin.cluster.topics(self._topics)))
        assigned = self._member.join()
        positions = Positions(self._admin.cluster, assigned, committed_only=self._committed_only)
        committed = self._admin.groups.committed(self._member.group_id)
        starts = positions.offsets(self._begin)
        starts |= {one: positions.starts[one] for one in assigned if one not in self._first}
        starts |= {one: positions.within(one, committed[one].offset) for one in assigned if one in committed}
        ends = None if self._follow else positions.ends
        self._reader = RecordsReader(
            self._admin.client, starts, ends=ends, committed_only=self._committed_only, bytes_max=self._bytes_max
        )
        if not assigned:
            typer.echo("the group has given this member no partition: there are more members than partitions", err=True)

    def _commit(self) -> None:
        offsets, self._uncommitted = self._uncommitted, {}
        self._commit_at_s = monotonic() + _COMMIT_S
        if offsets and not self._member.commit(offsets):
            typer.echo("the group has gone on without this member; some records will be read again", err=True)

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()


def _every(topics: Mapping[str, TopicInfo]) -> Iterator[TopicPartition]:
    return (TopicPartition(name, number) for name, info in topics.items() for number in info.partitions)


class _Lost:
    """Says once for each partition that what should come next had been removed before it was read."""

    def __init__(self) -> None:
        self._told: dict[TopicPartition, int] = {}

    def tell(self, reader: RecordsReader) -> None:
        for partition, count in reader.lost.items():
            if more := count - self._told.get(partition, 0):
                self._told[partition] = count
                typer.echo(f"{plural(more, 'offset')} of {partition} had been removed and are skipped", err=True)
