"""Rules about offsets that never go back: a partition's latest offset, and a group's committed offset.

Both are checked against real time. A response may reflect the state at the time of its request, so it is compared with
what was known before that time.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from heapq import merge
from math import inf
from operator import attrgetter
from typing import NamedTuple

from logbrook.model import TopicPartition
from logbrook.testing.history.anomalies import Rule
from logbrook.testing.history.events import BrokerKilled, Committed, CommittedSeen, CommitUnknown, LatestSeen, Resumed
from logbrook.testing.history.index import HistoryIndex, PartitionHistory
from logbrook.testing.history.writes import FINAL_READER

_BEGUN_AT_NS = attrgetter("begun_at_ns")


def check_monotonicity(history: HistoryIndex) -> None:
    latest: dict[TopicPartition, list[LatestSeen]] = defaultdict(list)
    for event in history.of(LatestSeen):
        latest[event.partition].append(event)
    for partition in history.partitions.values():
        _check_latest(history, partition, latest[partition.partition])
    _check_commits(history)


class _KnownLogEnd(NamedTuple):
    """From `at_ns` on, the log end offset is known to be at least `offset`."""

    at_ns: int
    offset: int


class _LatestOffsetResponse(NamedTuple):
    begun_at_ns: int
    offset: int
    client: str


def _check_latest(history: HistoryIndex, partition: PartitionHistory, latest: list[LatestSeen]) -> None:
    known = merge(
        (_KnownLogEnd(event.at_ns, event.offset) for event in latest),
        (_KnownLogEnd(event.at_ns, event.offset + 1) for event in partition.acknowledged),
        (_KnownLogEnd(event.at_ns, event.offset + 1) for event in partition.polled),
    )
    responses = sorted(_LatestOffsetResponse(event.begun_at_ns, event.offset, event.client) for event in latest)
    final = partition.final_read
    if final is not None:
        responses.append(_LatestOffsetResponse(final.begun_at_ns, final.log_end_offset, FINAL_READER))
    floor = 0
    ahead = next(known, None)
    for response in responses:
        while ahead is not None and ahead.at_ns < response.begun_at_ns:
            floor = max(floor, ahead.offset)
            ahead = next(known, None)
        if response.offset < floor:
            is_reported = response.client == FINAL_READER and any(
                offset in partition.reported for offset in range(response.offset, floor)
            )
            if not is_reported:
                history.report(
                    Rule.LATEST_OFFSET_WENT_BACK,
                    partition=partition.partition,
                    was=floor,
                    seen=response.offset,
                    client=response.client,
                )
            floor = response.offset


class _Commit(NamedTuple):
    begun_at_ns: float
    over_at_ns: float
    """The time after which it can no longer take effect."""


class _CommitResponse(NamedTuple):
    at_ns: int
    begun_at_ns: int
    client: str
    offset: int | None
    """The committed offset; None if there is none."""
    is_start: bool
    """A member started at `offset`; without a committed offset it starts at the first record."""
    lowest: int
    """No record between this offset and `offset` is visible, so the member may have started here as well."""


class _EffectiveCommit(NamedTuple):
    """At `at_ns` a commit that began at `begun_at_ns` is known to have taken effect."""

    at_ns: int
    begun_at_ns: float
    offset: int


class _GroupOffset:
    """The commits of one group for one partition, and the responses that showed the committed offset.

    It is checked as a register. A response may show any commit that began before the response arrived, unless that
    commit was over before another one began that had taken effect before the request was sent. A commit has taken
    effect when it is acknowledged or when a response showed it.
    """

    def __init__(self) -> None:
        self.commits: dict[int, list[_Commit]] = defaultdict(list)
        self.acknowledged: list[_EffectiveCommit] = []
        self.responses: list[_CommitResponse] = []

    def impossible(self) -> Iterator[tuple[_CommitResponse, _EffectiveCommit | None]]:
        """Yield the responses that no register could give, each with the commit it contradicts, if any."""
        settled = merge(self.acknowledged, sorted(self._seen()))
        ahead = next(settled, None)
        newest: _EffectiveCommit | None = None
        for response in sorted(self.responses, key=_BEGUN_AT_NS):
            while ahead is not None and ahead.at_ns < response.begun_at_ns:
                newest = ahead if newest is None else max(newest, ahead, key=_BEGUN_AT_NS)
                ahead = next(settled, None)
            if not self._is_possible(response, newest):
                yield response, newest

    def _seen(self) -> Iterator[_EffectiveCommit]:
        for response in self.responses:
            commits = self._candidates(response)
            if commits and response.offset is not None:
                yield _EffectiveCommit(response.at_ns, min(commit.begun_at_ns for commit in commits), response.offset)

    def _is_possible(self, response: _CommitResponse, newest: _EffectiveCommit | None) -> bool:
        if newest is None and (response.offset is None or (response.is_start and response.lowest == 0)):
            return True
        return any(newest is None or commit.over_at_ns >= newest.begun_at_ns for commit in self._candidates(response))

    def _candidates(self, response: _CommitResponse) -> list[_Commit]:
        if response.offset is None:
            return []
        offsets = range(response.lowest, response.offset + 1)
        commits = [commit for offset in offsets for commit in self.commits.get(offset, ())]
        return [commit for commit in commits if commit.begun_at_ns < response.at_ns]


def _check_commits(history: HistoryIndex) -> None:
    for (group, partition), offset in _group_offsets(history).items():
        for response, settled in offset.impossible():
            facts = {"partition": partition, "group": group, "seen": response.offset, "client": response.client}
            if settled is not None and (response.offset is None or response.offset < settled.offset):
                history.report(Rule.COMMIT_WENT_BACK, **facts, committed=settled.offset)
            else:
                assert response.offset is not None, "a response without an offset contradicts only a settled commit"
                history.report(Rule.COMMIT_NEVER_MADE, **facts)


def _group_offsets(history: HistoryIndex) -> dict[tuple[str, TopicPartition], _GroupOffset]:
    group_offsets: dict[tuple[str, TopicPartition], _GroupOffset] = defaultdict(_GroupOffset)
    for commit in history.of(Committed):
        group_offset = group_offsets[commit.group, commit.partition]
        group_offset.commits[commit.offset].append(_Commit(commit.begun_at_ns, commit.at_ns))
        group_offset.acknowledged.append(_EffectiveCommit(commit.at_ns, commit.begun_at_ns, commit.offset))
    kill_times_ns = [event.at_ns for event in history.of(BrokerKilled)]
    for event in history.of(CommitUnknown):
        next_kill = bisect_left(kill_times_ns, event.at_ns)
        over_at_ns = kill_times_ns[next_kill] if next_kill < len(kill_times_ns) else inf
        group_offsets[event.group, event.partition].commits[event.offset].append(_Commit(event.begun_at_ns, over_at_ns))
    for seen in history.of(CommittedSeen):
        response = _CommitResponse(seen.at_ns, seen.begun_at_ns, seen.client, seen.offset, False, seen.offset or 0)
        group_offsets[seen.group, seen.partition].responses.append(response)
    gaps = _Gaps(history)
    for resumed in history.of(Resumed):
        if resumed.group:
            offset, lowest = resumed.offset, gaps.lowest(resumed.partition, resumed.offset)
            response = _CommitResponse(resumed.at_ns, resumed.begun_at_ns, resumed.consumer, offset, True, lowest)
            group_offsets[resumed.group, resumed.partition].responses.append(response)
    return group_offsets


class _Gaps:
    """The offsets without visible records in partitions with transactions: markers and aborted records."""

    def __init__(self, history: HistoryIndex) -> None:
        self._known = {
            name: partition.known_offsets()
            for name, partition in history.partitions.items()
            if partition.markers or partition.transactional
        }

    def lowest(self, partition: TopicPartition, offset: int) -> int:
        """The smallest position from which a consumer's next record is the one at `offset`."""
        known = self._known.get(partition)
        if known is None:
            return offset
        before = bisect_left(known, offset)
        return known[before - 1] + 1 if before else 0
