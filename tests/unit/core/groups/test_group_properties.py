"""Invariants of the group coordinator under random requests, times, failures and restarts.

- `validate()` after each step.
- Every request is answered exactly once, or still waits and has a deadline.
- In one group's life generations never go back, and one generation has one assignment.
- No reply has an assignment that is not committed.
- The log alone gives a fresh coordinator the same offsets and the same group metadata.

Writes are replayed when they are appended and committed later, in order. Some are refused; some cannot be committed,
and the coordinator is loaded again. Some commits are part of transactions, which end later: then, of all that was
committed for a partition, what is last in the log counts.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from logbrook.core.coordinator import CoordinatorError, CoordinatorNotAvailableError, ProducerIdentity
from logbrook.core.groups.errors import (
    GroupError,
    MemberIdRequiredError,
    RebalanceInProgressError,
)
from logbrook.core.groups.messages import (
    CommitRequest,
    GroupOutcome,
    GroupReply,
    GroupWrite,
    JoinRequest,
    JoinResult,
    LeavingMember,
    OffsetToCommit,
    SyncRequest,
    SyncResult,
)
from logbrook.core.groups.records import (
    GroupKey,
    GroupMetadata,
    OffsetKey,
    decode_group_metadata,
    decode_key,
    decode_offset_value,
)
from logbrook.core.groups.shard import GroupCoordinatorShard
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset, ProducerEpoch, ProducerId
from logbrook.testing.seeded_random import SeededRandom
from tests.unit.core.groups.kit import a_config, subscription

CONFIG = a_config(initial_rebalance_delay_ms=100, members_max=4, groups_max=2, offsets_retention_ms=1_200_000)
GROUPS = ("g", "h", "i")
CLIENTS = st.integers(0, 5)
PROTOCOLS = (
    (("range", subscription("t")),),
    (("range", subscription("t", "u")),),
    (("sticky", subscription("t")), ("range", subscription("t"))),
    (("range", subscription("t")), ("sticky", subscription("t"))),
    (("own", b"?"),),
)
PARTITIONS = st.builds(TopicPartition, st.sampled_from(["t", "u"]), st.integers(0, 2))
RARELY = st.sampled_from([False] * 7 + [True])


@dataclass(slots=True)
class Client:
    """A client with the state from its last responses. Clients 4 and 5 are static, and share an instance id."""

    number: int
    group_id: str = "g"
    member_id: str = ""
    generation: int = -1
    # The next request of a client that follows the protocol.
    next_step: str = "join"
    reply_to: int | None = None

    @property
    def instance_id(self) -> str | None:
        return "i" if self.number >= 4 else None

    def forget(self) -> None:
        self.member_id, self.generation, self.next_step = "", -1, "join"

    def take(self, result: JoinResult | SyncResult | CoordinatorError | None) -> None:
        """Update the state from a response. None is the response to a successful heartbeat."""
        match result:
            case JoinResult():
                self.member_id, self.generation, self.next_step = result.member_id, result.generation, "sync"
            case SyncResult():
                self.next_step = "heartbeat"
            case MemberIdRequiredError():
                self.member_id = result.member_id
            case RebalanceInProgressError() | CoordinatorNotAvailableError():
                self.next_step = "join"
            case CoordinatorError():
                self.forget()


@dataclass(slots=True)
class Answers:
    """Every request, and which of them were answered."""

    asked: dict[int, tuple[Client, str]] = field(default_factory=dict)
    answered: set[int] = field(default_factory=set)
    disconnected: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Entry:
    """A log entry: a write, which may be part of a producer's transaction, or the marker that ends one."""

    write: GroupWrite
    producer_id: int | None = None
    is_commit: bool | None = None

    def replay(self, coordinator: GroupCoordinatorShard) -> None:
        if self.is_commit is not None:
            assert self.producer_id is not None
            coordinator.replay_marker(
                ProducerIdentity(ProducerId(self.producer_id), ProducerEpoch(0)), is_commit=self.is_commit
            )
        for key, value in self.write.records:
            if self.producer_id is None:
                coordinator.replay(key, value)
            else:
                coordinator.replay(key, value, ProducerIdentity(ProducerId(self.producer_id), ProducerEpoch(0)))


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.random = SeededRandom()
        self.coordinator = GroupCoordinatorShard(CONFIG, self.random)
        self.coordinator.finish_loading(0)
        self.now_ms = 0
        self.clients = [Client(number) for number in range(6)]
        # All that was appended; the first `committed` entries are committed.
        self.log: list[Entry] = []
        self.committed = 0
        # Replies with the length of the log when they were decided.
        self.held: list[tuple[int, GroupReply]] = []
        self.refuses = False
        self.requests = 0
        self.answers = Answers()
        self.generations: dict[str, int] = {}
        # What was written, by group, generation and member.
        self.assignments: dict[tuple[str, int, str], bytes] = {}

    # Actions of clients

    @rule(numbers=st.lists(CLIENTS, min_size=1, max_size=6), rounds=st.integers(1, 4), salt=st.integers(0, 3))
    def behave(self, numbers: list[int], rounds: int, salt: int) -> None:
        """Let some clients follow the protocol: join, sync, heartbeat, and rejoin when required."""
        for _ in range(rounds):
            for number in numbers:
                client = self.clients[number]
                waits = client.reply_to is not None and client.reply_to not in self.answers.answered
                if waits and client.reply_to not in self.answers.disconnected:
                    continue
                if client.next_step == "join":
                    self.send_join(client, PROTOCOLS[0], 30_000, 60_000, version=5)
                elif client.next_step == "sync":
                    self.send_sync(client, client.generation, salt)
                else:
                    self.heartbeat(number)

    @rule(
        number=CLIENTS,
        group_id=st.sampled_from(("g", "g", "g", "h", "i")),
        protocols=st.sampled_from(PROTOCOLS),
        forgetful=RARELY,
        session_timeout_ms=st.sampled_from([6_000, 30_000, 400_000, 1]),
        rebalance_timeout_ms=st.sampled_from([0, 5_000, 60_000]),
        version=st.sampled_from([3, 5, 9]),
    )
    def join(
        self,
        number: int,
        group_id: str,
        protocols: tuple[tuple[str, bytes], ...],
        forgetful: bool,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        version: int,
    ) -> None:
        client = self.clients[number]
        if forgetful or client.group_id != group_id:
            client.group_id = group_id
            client.forget()
        self.send_join(client, protocols, session_timeout_ms, rebalance_timeout_ms, version)

    def send_join(
        self,
        client: Client,
        protocols: tuple[tuple[str, bytes], ...],
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        version: int,
    ) -> None:
        request = JoinRequest(
            client.group_id,
            client.member_id,
            f"c{client.number}",
            "host",
            session_timeout_ms,
            rebalance_timeout_ms,
            "consumer",
            protocols,
            client.instance_id,
            requires_known_member_id=version >= 4,
            supports_skip_assignment=version >= 9,
        )
        self.apply(self.coordinator.join(request, self.ask(client), self.now_ms))

    @rule(number=CLIENTS, stale=RARELY, salt=st.integers(0, 3))
    def sync(self, number: int, stale: bool, salt: int) -> None:
        client = self.clients[number]
        self.send_sync(client, client.generation - stale, salt)

    def send_sync(self, client: Client, generation: int, salt: int) -> None:
        members = self.coordinator.describe(client.group_id).members
        assignments = [(each.member_id, f"{salt} for {each.member_id}".encode()) for each in members[salt // 2 :]]
        request = SyncRequest(
            client.group_id, generation, client.member_id, client.instance_id, assignments=assignments
        )
        self.apply(self.coordinator.sync(request, self.ask(client), self.now_ms))

    @rule(number=CLIENTS)
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        try:
            self.coordinator.heartbeat(
                client.group_id, client.generation, client.member_id, client.instance_id, self.now_ms
            )
        except GroupError as error:
            client.take(error)

    @rule(number=CLIENTS, by_instance=st.booleans())
    def leave(self, number: int, by_instance: bool) -> None:
        client = self.clients[number]
        member_id = "" if by_instance else client.member_id
        left, outcome = self.coordinator.leave(
            client.group_id, [LeavingMember(member_id, client.instance_id)], self.now_ms
        )
        assert len(left) == 1
        self.apply(outcome)

    @rule(number=CLIENTS, partition=PARTITIONS, offset=st.integers(0, 100), simple=st.booleans())
    def commit(self, number: int, partition: TopicPartition, offset: int, simple: bool) -> None:
        client = self.clients[number]
        member_id, generation = ("", -1) if simple else (client.member_id, client.generation)
        instance_id = None if simple else client.instance_id
        offsets = [OffsetToCommit(partition, Offset(offset), metadata="x" * offset)]
        request = CommitRequest(client.group_id, member_id, generation, offsets, instance_id)
        try:
            decision = self.coordinator.commit_offsets(request, self.now_ms)
        except GroupError:
            return
        self.write(decision.write)

    @rule(
        group_id=st.sampled_from(GROUPS),
        partition=PARTITIONS,
        offset=st.integers(0, 100),
        producer_id=st.integers(1, 3),
    )
    def commit_in_transaction(self, group_id: str, partition: TopicPartition, offset: int, producer_id: int) -> None:
        offsets = [OffsetToCommit(partition, Offset(offset))]
        request = CommitRequest(group_id, "", -1, offsets, transactional=True, producer_id=ProducerId(producer_id))
        try:
            decision = self.coordinator.commit_offsets(request, self.now_ms)
        except GroupError:
            return
        self.append(Entry(decision.write, producer_id))

    @rule(producer_id=st.integers(1, 3), is_commit=st.booleans())
    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        self.append(Entry(GroupWrite("", []), producer_id, is_commit))

    # Actions of the environment

    @rule(group_id=st.sampled_from(GROUPS), partition=PARTITIONS, kind=st.integers(0, 2))
    def delete(self, group_id: str, partition: TopicPartition, kind: int) -> None:
        try:
            if kind == 0:
                self.write(self.coordinator.delete_group(group_id))
            elif kind == 1:
                self.write(self.coordinator.delete_offsets(group_id, [partition]).write)
            else:
                for write in self.coordinator.delete_topic_offsets({partition.topic}):
                    self.write(write)
        except GroupError:
            return

    @rule(by_ms=st.sampled_from([0, 1, 100, 100, 100, 1_000, 5_999, 30_000, 60_000, 700_000]))
    def advance(self, by_ms: int) -> None:
        """Time passes with a tick at each deadline."""
        until_ms = self.now_ms + by_ms
        ticks = 0
        while (deadline_ms := self.coordinator.next_deadline_ms()) is not None and deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.apply(self.coordinator.tick(self.now_ms))
            ticks += 1
            assert ticks < 2_000, "it spins"
        self.now_ms = until_ms

    @rule(by_ms=st.sampled_from([10_000, 400_000]), really=RARELY)
    def oversleep(self, by_ms: int, really: bool) -> None:
        """Time passes with one late tick."""
        self.now_ms += by_ms if really else 100
        self.apply(self.coordinator.tick(self.now_ms))

    @rule(pick=st.integers(0, 10**6))
    def disconnect(self, pick: int) -> None:
        waiting = sorted(self.unanswered() - self.held_tokens())
        if waiting:
            reply_to = waiting[pick % len(waiting)]
            self.answers.disconnected.add(reply_to)
            self.coordinator.disconnect(reply_to, self.now_ms)

    @precondition(lambda self: self.committed < len(self.log))
    @rule(count=st.integers(1, 5))
    def commit_appends(self, count: int) -> None:
        for entry in self.log[self.committed : self.committed + count]:
            for key, value in entry.write.records:
                self.check_one_assignment(key, value)
        self.committed = min(self.committed + count, len(self.log))
        self.release()

    @rule(refuses=RARELY)
    def fill_disk(self, refuses: bool) -> None:
        """Appends are refused until there is room again."""
        self.refuses = refuses

    @precondition(lambda self: self.committed < len(self.log))
    @rule(really=RARELY)
    def fail_sync(self, really: bool) -> None:
        """Fail the commit of appended records: their replies fail, and the coordinator is loaded again."""
        if not really:
            self.commit_appends(1)
            return
        for reply_to in sorted(self.unanswered()):
            client, _ = self.answers.asked[reply_to]
            self.answers.answered.add(reply_to)
            if reply_to == client.reply_to:
                client.take(CoordinatorNotAvailableError("g"))
        self.reload()

    @rule(really=RARELY)
    def restart(self, really: bool) -> None:
        """Lose all uncommitted entries and all connections."""
        if not really:
            return
        for client in self.clients:
            client.reply_to = None
        self.answers = Answers()
        self.reload()

    def reload(self) -> None:
        del self.log[self.committed :]
        self.held = []
        self.generations = {}
        self.coordinator = self.fresh_coordinator()

    @invariant()
    def rules_hold(self) -> None:
        self.coordinator.validate()

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        waiting = set(self.coordinator._pending_replies)
        held = self.held_tokens()
        assert self.unanswered() == (waiting | held)
        assert waiting.isdisjoint(held)
        assert not waiting or self.coordinator.next_deadline_ms() is not None

    @invariant()
    def generations_never_go_back(self) -> None:
        groups = self.coordinator._groups
        for group_id, group in groups.items():
            assert group.generation >= self.generations.get(group_id, 0)
        self.generations = {group_id: group.generation for group_id, group in groups.items()}

    @invariant()
    def the_log_tells_it_all(self) -> None:
        fresh = self.fresh_coordinator()
        fresh.validate()
        for group_id in GROUPS:
            assert fresh.fetch_offsets(group_id, None) == self.coordinator.fetch_offsets(group_id, None)
            assert written(fresh, group_id) == written(self.coordinator, group_id)
            assert fresh.unstable_partitions(group_id) == self.coordinator.unstable_partitions(group_id)

    @invariant()
    def what_is_last_in_the_log_counts(self) -> None:
        for group_id in GROUPS:
            committed = self.coordinator.fetch_offsets(group_id, None)
            assert {partition: each.offset for partition, each in committed.items()} == self.last_offsets(group_id)

    def last_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """Return the last decided and not aborted offset of each partition, unless it was deleted later."""
        ends = {at: entry for at, entry in enumerate(self.log) if entry.is_commit is not None}
        offsets: dict[TopicPartition, int] = {}
        for at, entry in enumerate(self.log):
            if entry.producer_id is not None:
                own = [
                    ends[end].is_commit
                    for end in sorted(ends)
                    if end >= at and ends[end].producer_id == entry.producer_id
                ]
                if not own or not own[0]:
                    continue
            for key, value in entry.write.records:
                what = decode_key(key)
                if isinstance(what, OffsetKey) and what.group_id == group_id:
                    if value is None:
                        offsets.pop(what.partition, None)
                    else:
                        offsets[what.partition] = decode_offset_value(value).offset
        return offsets

    def fresh_coordinator(self) -> GroupCoordinatorShard:
        fresh = GroupCoordinatorShard(CONFIG, self.random)
        for entry in self.log:
            entry.replay(fresh)
        fresh.finish_loading(self.now_ms)
        return fresh

    def ask(self, client: Client) -> int:
        self.requests += 1
        client.reply_to = self.requests
        self.answers.asked[self.requests] = (client, client.group_id)
        return self.requests

    def held_tokens(self) -> set[object]:
        return {reply.reply_to for _, reply in self.held} - self.answers.disconnected

    def unanswered(self) -> set[int]:
        return self.answers.asked.keys() - self.answers.answered - self.answers.disconnected

    def apply(self, outcome: GroupOutcome) -> None:
        for write in outcome.writes:
            self.write(write)
        self.hold(outcome.replies)

    def write(self, write: GroupWrite) -> None:
        if self.refuses:
            self.apply(self.coordinator.append_refused(write, self.now_ms))
            return
        self.append(Entry(write))
        self.hold(write.replies)

    def append(self, entry: Entry) -> None:
        self.log.append(entry)
        entry.replay(self.coordinator)

    def hold(self, replies: list[GroupReply]) -> None:
        self.held += [(len(self.log), reply) for reply in replies]
        self.release()

    def release(self) -> None:
        released = [reply for length, reply in self.held if length <= self.committed]
        self.held = [(length, reply) for length, reply in self.held if length > self.committed]
        for reply in released:
            self.deliver(reply)

    def deliver(self, reply: GroupReply) -> None:
        assert isinstance(reply.reply_to, int)
        assert reply.reply_to not in self.answers.answered, "answered twice"
        assert reply.reply_to not in self.answers.disconnected, "answered to nobody"
        self.answers.answered.add(reply.reply_to)
        client, group_id = self.answers.asked[reply.reply_to]
        if isinstance(reply.result, SyncResult):
            self.check_is_durable(group_id, reply.result)
        if reply.reply_to == client.reply_to:
            client.take(reply.result)

    def check_is_durable(self, group_id: str, result: SyncResult) -> None:
        key = GroupKey(group_id).encode()
        records = [record for entry in self.log[: self.committed] for record in entry.write.records]
        written = [decode_group_metadata(value) for each, value in records if each == key and value is not None]
        assignments = {member.assignment for metadata in written for member in metadata.members}
        assert result.assignment in assignments, "an assignment that a restart would lose"

    def check_one_assignment(self, key: bytes, value: bytes | None) -> None:
        what = decode_key(key)
        if not isinstance(what, GroupKey):
            return
        if value is None:
            # The group is deleted: the next one of this id counts generations from the start again.
            self.assignments = {
                each: assigned for each, assigned in self.assignments.items() if each[0] != what.group_id
            }
            return
        metadata = decode_group_metadata(value)
        for member in metadata.members:
            place = (what.group_id, metadata.generation, member.group_instance_id or member.member_id)
            assert self.assignments.setdefault(place, member.assignment) == member.assignment


def written(coordinator: GroupCoordinatorShard, group_id: str) -> GroupMetadata | None:
    group = coordinator._groups.get(group_id)
    return None if group is None else group.written_metadata


@pytest.mark.long
def test_many_operations_on_groups() -> None:
    run_state_machine_as_test(Groups, settings=settings(max_examples=750, stateful_step_count=60))


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=70, stateful_step_count=50)
