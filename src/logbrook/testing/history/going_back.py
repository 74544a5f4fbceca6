"""Rules about what only rises: a partition's latest offset, and what a group has committed until it commits anew.

Both are judged by real time. An answer may be as old as the moment it was asked for, so it is held against what was
known before that moment.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from heapq import merge
from math import inf
from typing import NamedTuple

from logbrook.model import TopicPartition
from logbrook.testing.history.events import (
    BrokerKilled,
    Committed,
    CommittedSeen,
    CommitUnknown,
    LatestSeen,
    Resumed,
)
from logbrook.testing.history.evidence import Evidence, PartitionEvidence
from logbrook.testing.history.findings import CommitFromNowhere, CommitWentBack, LatestWentBack
from logbrook.testing.history.writes import FINAL_READER


def check_going_back(evidence: Evidence) -> None:
    latest: dict[TopicPartition, list[LatestSeen]] = defaultdict(list)
    for event in evidence.of(LatestSeen):
        latest[event.partition].append(event)
    for partition in evidence.partitions.values():
        _check_latest(evidence, partition, latest[partition.partition])
    _check_commits(evidence)


class _Known(NamedTuple):
    """From this moment on the log is known to reach to this offset."""

    at_ns: int
    offset: int


class _Answer(NamedTuple):
    begun_at_ns: int
    offset: int
    client: str


def _check_latest(evidence: Evidence, partition: PartitionEvidence, latest: list[LatestSeen]) -> None:
    known = merge(
        (_Known(event.at_ns, event.offset) for event in latest),
        (_Known(event.at_ns, event.offset + 1) for event in partition.acknowledged),
        (_Known(event.at_ns, event.offset + 1) for event in partition.polled),
    )
    answers = sorted(_Answer(event.begun_at_ns, event.offset, event.client) for event in latest)
    final = partition.final_read
    if final is not None:
        answers.append(_Answer(final.begun_at_ns, final.log_end_offset, FINAL_READER))
    floor = 0
    ahead = next(known, None)
    for answer in answers:
        while ahead is not None and ahead.at_ns < answer.begun_at_ns:
            floor = max(floor, ahead.offset)
            ahead = next(known, None)
        if answer.offset < floor:
            is_told = answer.client == FINAL_READER and any(
                offset in partition.told for offset in range(answer.offset, floor)
            )
            if not is_told:
                evidence.find(LatestWentBack(partition.partition, floor, answer.offset, answer.client))
            floor = answer.offset


class _Commit(NamedTuple):
    begun_at_ns: float
    over_at_ns: float
    """From here on it cannot take effect any more, if it did not before."""


class _CommitAnswer(NamedTuple):
    at_ns: int
    begun_at_ns: int
    client: str
    offset: int | None
    """What is committed; None if nothing is."""
    is_start: bool
    """A member began at `offset`: with nothing committed it begins at the first record."""
    lowest: int
    """Between this offset and `offset` is nothing that a member would be given, so it may have begun there as well."""


class _Settled(NamedTuple):
    """At `at_ns` a commit that began at `begun_at_ns` is known to have taken effect."""

    at_ns: int
    begun_at_ns: float
    offset: int


class _GroupOffset:
    """The commits of one group for one partition, and what was found of them.

    It is a register. An answer may be the offset of any commit that began before the answer came, unless that commit
    was over before another began which had taken effect before the question was asked. A commit has taken effect when
    it is acknowledged, or when somebody has seen it.
    """

    def __init__(self) -> None:
        self.commits: dict[int, list[_Commit]] = defaultdict(list)
        self.acknowledged: list[_Settled] = []
        self.answers: list[_CommitAnswer] = []

    def impossible(self) -> Iterator[tuple[_CommitAnswer, _Settled | None]]:
        """Answers that cannot be, each with the commit that it contradicts if there is one."""
        settled = merge(self.acknowledged, sorted(self._seen()))
        ahead = next(settled, None)
        newest: _Settled | None = None
        for answer in sorted(self.answers, key=_begun_at_ns):
            while ahead is not None and ahead.at_ns < answer.begun_at_ns:
                newest = ahead if newest is None else max(newest, ahead, key=_begun_at_ns)
                ahead = next(settled, None)
            if not self._is_possible(answer, newest):
                yield answer, newest

    def _seen(self) -> Iterator[_Settled]:
        for answer in self.answers:
            commits = self._candidates(answer)
            if commits and answer.offset is not None:
                yield _Settled(answer.at_ns, min(commit.begun_at_ns for commit in commits), answer.offset)

    def _is_possible(self, answer: _CommitAnswer, newest: _Settled | None) -> bool:
        if newest is None and (answer.offset is None or (answer.is_start and answer.lowest == 0)):
            return True
        return any(newest is None or one.over_at_ns >= newest.begun_at_ns for one in self._candidates(answer))

    def _candidates(self, answer: _CommitAnswer) -> list[_Commit]:
        if answer.offset is None:
            return []
        offsets = range(answer.lowest, answer.offset + 1)
        commits = [commit for offset in offsets for commit in self.commits.get(offset, ())]
        return [commit for commit in commits if commit.begun_at_ns < answer.at_ns]


def _check_commits(evidence: Evidence) -> None:
    for (group, partition), offset in _group_offsets(evidence).items():
        for answer, settled in offset.impossible():
            if settled is not None and (answer.offset is None or answer.offset < settled.offset):
                evidence.find(CommitWentBack(partition, group, settled.offset, answer.offset, answer.client))
            else:
                assert answer.offset is not None, "nothing is possible while nothing is settled"
                evidence.find(CommitFromNowhere(partition, group, answer.offset, answer.client))


def _group_offsets(evidence: Evidence) -> dict[tuple[str, TopicPartition], _GroupOffset]:
    found: dict[tuple[str, TopicPartition], _GroupOffset] = defaultdict(_GroupOffset)
    for commit in evidence.of(Committed):
        group_offset = found[commit.group, commit.partition]
        group_offset.commits[commit.offset].append(_Commit(commit.begun_at_ns, commit.at_ns))
        group_offset.acknowledged.append(_Settled(commit.at_ns, commit.begun_at_ns, commit.offset))
    deaths = [event.at_ns for event in evidence.of(BrokerKilled)]
    for event in evidence.of(CommitUnknown):
        died = bisect_left(deaths, event.at_ns)
        over_at_ns = deaths[died] if died < len(deaths) else inf
        found[event.group, event.partition].commits[event.offset].append(_Commit(event.begun_at_ns, over_at_ns))
    for seen in evidence.of(CommittedSeen):
        answer = _CommitAnswer(seen.at_ns, seen.begun_at_ns, seen.client, seen.offset, False, seen.offset or 0)
        found[seen.group, seen.partition].answers.append(answer)
    gaps = _Gaps(evidence)
    for resumed in evidence.of(Resumed):
        if resumed.group:
            offset, lowest = resumed.offset, gaps.lowest(resumed.partition, resumed.offset)
            answer = _CommitAnswer(resumed.at_ns, resumed.begun_at_ns, resumed.consumer, offset, True, lowest)
            found[resumed.group, resumed.partition].answers.append(answer)
    return found


class _Gaps:
    """Where consumers are given nothing, in partitions with transactions: their ends, and what was aborted."""

    def __init__(self, evidence: Evidence) -> None:
        self._known = {
            name: partition.known_offsets()
            for name, partition in evidence.partitions.items()
            if partition.markers or partition.transactional
        }

    def lowest(self, partition: TopicPartition, offset: int) -> int:
        """The first of the offsets from which on a consumer is given the record at `offset` next."""
        known = self._known.get(partition)
        if known is None:
            return offset
        before = bisect_left(known, offset)
        return known[before - 1] + 1 if before else 0


def _begun_at_ns(one: _CommitAnswer | _Settled) -> float:
    return one.begun_at_ns
