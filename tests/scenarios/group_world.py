"""Interpreter of group scenarios: one coordinator shard, its log, and scripted clients.

Commands and their options:

    config NAME=VALUE ...           the coordinator's settings; the first command
    join CLIENT [member=M] [instance=I] [protocols=range(t,u)|sticky(t)] [type=T] [session=MS] [rebalance=MS] [v=N]
    sync CLIENT [member=M] [instance=I] [generation=N] [protocol=P] [CLIENT:ASSIGNMENT ...]
    heartbeat CLIENT [member=M] [instance=I] [generation=N]
    leave CLIENT ... | leave instance=I
    commit CLIENT|- TOPIC-PARTITION=OFFSET[:NOTE] ... [generation=N] [producer=N]
    end-transaction N commit|abort  end the transaction of producer N; its commits are pending before
    fetch [TOPIC-PARTITION ...]     offsets with pending transactional commits are reported as unstable
    delete-offsets TOPIC-PARTITION ... | delete-group | delete-topic TOPIC | describe | list
    disconnect CLIENT               close the connection of its last request
    advance MS                      let time pass, with a tick at each deadline
    hold | durable                  stop committing appends, so that replies wait; commit all of them
    refuse                          the next append is refused
    fail                            appends since `hold` cannot be committed: replies fail, and the log is loaded again
    crash [NAME=VALUE ...]          lose everything that is not durable; optionally change settings
    load                            replay the log and open for requests
    restart [NAME=VALUE ...]        crash and load

A client keeps the member id and the generation of its last response, and sends JoinGroup v5 (from v4 on a member id is
required). `member=-` sends no id, `member=a/1` this one. The group is `g`, or `group=NAME`.
"""

import struct
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from logbrook.config import GroupConfig
from logbrook.core.coordinator import CoordinatorError, CoordinatorNotAvailableError, ProducerIdentity
from logbrook.core.groups.errors import GroupError, MemberIdRequiredError
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
)
from logbrook.core.groups.shard import GroupCoordinatorShard
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset, ProducerEpoch, ProducerId
from logbrook.testing.seeded_random import SeededRandom
from tests.scenarios.group_trace import Trace

# A client, the kind of its request, and how many requests it has sent.
Token: TypeAlias = tuple[str, str, int]


@dataclass(slots=True)
class Client:
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None
    requests: int = 0


@dataclass(slots=True)
class Entry:
    """An entry of the log: a write, possibly part of a transaction, or a transaction marker."""

    write: GroupWrite
    producer_id: int | None = None
    is_commit: bool | None = None


@dataclass(slots=True)
class Words:
    """A command's words: plain ones, and those of the form key=value."""

    plain: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)


class GroupWorld:
    def __init__(self) -> None:
        self._config = GroupConfig(initial_rebalance_delay_ms=0)
        self._random = SeededRandom()
        self._coordinator = self._started(GroupCoordinatorShard(self._config, self._random))
        self._now_ms = 0
        self._clients: dict[str, Client] = {}
        # All that was appended; the first `_committed` entries are committed.
        self._log: list[Entry] = []
        self._committed = 0
        self._is_holding = False
        self._refuses_next = False
        # Replies that wait for a commit, and the text that reports a fetch that does.
        self._held: list[GroupReply | list[str]] = []
        self._trace = Trace()
        self._states: dict[str, str] = {}
        self._lines: list[str] = []
        self._delivered: set[Token] = set()

    def run(self, command: str) -> list[str]:
        """Run a command. Returns the trace of its effects."""
        verb, *rest = command.split()
        words = Words()
        for word in rest:
            name, equals, value = word.partition("=")
            if equals:
                words.named[name] = value
            else:
                words.plain.append(word)
        self._lines = []
        try:
            getattr(self, "_do_" + verb.replace("-", "_"))(words)
        except GroupError as error:
            self._say(self._trace.error(error))
        self._tell_states()
        self._coordinator.validate()
        return self._lines

    # Requests

    def _do_join(self, words: Words) -> None:
        name = words.plain[0]
        client = self._clients.setdefault(name, Client())
        client.instance_id = words.named.get("instance", client.instance_id)
        protocol_type = words.named.get("type", "consumer")
        version = int(words.named.get("v", "5"))
        session_timeout_ms = int(words.named.get("session", "10000"))
        request = JoinRequest(
            group_id=self._group(words),
            member_id=self._member_id(name, words),
            client_id=name,
            client_host=f"host-of-{name}",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=int(words.named.get("rebalance", "60000")),
            protocol_type=protocol_type,
            protocols=[_protocol(text) for text in words.named.get("protocols", "range(t)").split("|") if text],
            group_instance_id=client.instance_id,
            requires_known_member_id=version >= 4,
            supports_skip_assignment=version >= 9,
        )
        token = self._token(name, "join")
        self._apply(self._coordinator.join(request, token, self._now_ms), token)

    def _do_sync(self, words: Words) -> None:
        name, *assignments = words.plain
        request = SyncRequest(
            self._group(words),
            int(words.named.get("generation", self._clients[name].generation)),
            self._member_id(name, words),
            words.named.get("instance", self._clients[name].instance_id),
            protocol_name=words.named.get("protocol"),
            assignments=[self._assignment(text) for text in assignments],
        )
        token = self._token(name, "sync")
        self._apply(self._coordinator.sync(request, token, self._now_ms), token)

    def _do_heartbeat(self, words: Words) -> None:
        name = words.plain[0]
        client = self._clients[name]
        generation = int(words.named.get("generation", client.generation))
        instance_id = words.named.get("instance", client.instance_id)
        member_id = self._member_id(name, words)
        self._coordinator.heartbeat(self._group(words), generation, member_id, instance_id, self._now_ms)

    def _do_leave(self, words: Words) -> None:
        leaving = [LeavingMember(self._member_id(name, words), self._clients[name].instance_id) for name in words.plain]
        if not leaving:
            leaving = [LeavingMember("", words.named["instance"])]
        results, outcome = self._coordinator.leave(self._group(words), leaving, self._now_ms)
        for result in results:
            name = self._trace.name(result.member_id) if result.member_id else result.group_instance_id
            self._say(f"{name} left" if result.error is None else f"{name}: {self._trace.error(result.error)}")
        self._apply(outcome)

    def _do_commit(self, words: Words) -> None:
        name = words.plain[0]
        client = self._clients.get(name, Client())
        generation = int(words.named.pop("generation", client.generation))
        group_id = self._group(words)
        member_id = self._member_id(name, words) if name != "-" else ""
        producer = words.named.pop("producer", None)
        producer_id = None if producer is None else int(producer)
        for word in ("group", "member"):
            words.named.pop(word, None)
        offsets = [_offset(partition, value) for partition, value in words.named.items()]
        request = CommitRequest(
            group_id, member_id, generation, offsets, client.instance_id, transactional=producer_id is not None
        )
        decision = self._coordinator.commit_offsets(request, self._now_ms)
        for partition, error in decision.errors.items():
            self._say(f"{partition}: {self._trace.error(error)}")
        self._write(decision.write, producer_id)

    def _do_end_transaction(self, words: Words) -> None:
        producer, decision = words.plain
        self._append(Entry(GroupWrite("", []), int(producer), is_commit=decision == "commit"))

    def _do_fetch(self, words: Words) -> None:
        partitions = [_partition(word) for word in words.plain] or None
        unstable = self._coordinator.unstable_partitions(self._group(words))
        lines = []
        for partition, offset in self._coordinator.fetch_offsets(self._group(words), partitions).items():
            note = f" ({offset.metadata})" if offset.metadata else ""
            lines.append(f"{partition} at {offset.offset}{note}" + (", unstable" if partition in unstable else ""))
        if self._committed < len(self._log):
            self._held.append(lines)
            self._say("fetch: waits")
        else:
            self._lines += lines

    def _do_delete_offsets(self, words: Words) -> None:
        partitions = [_partition(word) for word in words.plain]
        deletion = self._coordinator.delete_offsets(self._group(words), partitions)
        for partition, error in deletion.errors.items():
            self._say(f"{partition}: {self._trace.error(error)}")
        self._write(deletion.write)

    def _do_delete_group(self, words: Words) -> None:
        self._write(self._coordinator.delete_group(self._group(words)))

    def _do_delete_topic(self, words: Words) -> None:
        for write in self._coordinator.delete_topic_offsets(set(words.plain)):
            self._write(write)

    def _do_list(self, words: Words) -> None:
        for group in self._coordinator.list_groups(words.plain):
            self._say(f"{group.group_id}: {group.state}, {group.protocol_type or 'no type'}, {group.group_type}")

    def _do_describe(self, words: Words) -> None:
        group = self._coordinator.describe(self._group(words))
        self._say(f"{group.group_id}: {group.state}, {group.protocol_type or '-'}, {group.protocol_name or '-'}")
        for member in group.members:
            instance = f" as {member.group_instance_id}" if member.group_instance_id else ""
            name = f"{self._trace.name(member.member_id)}{instance} at {member.client_host}"
            self._say(f"  {name}: {len(member.subscription)} bytes of metadata, [{member.assignment.decode()}]")

    # Environment

    def _do_config(self, words: Words) -> None:
        settings: dict[str, Any] = {name: int(value) for name, value in words.named.items()}
        self._config = GroupConfig(**{"initial_rebalance_delay_ms": 0, **settings})
        self._coordinator = self._started(GroupCoordinatorShard(self._config, self._random))

    def _do_advance(self, words: Words) -> None:
        until_ms = self._now_ms + int(words.plain[0])
        while (deadline_ms := self._coordinator.next_deadline_ms()) is not None and deadline_ms <= until_ms:
            self._now_ms = max(deadline_ms, self._now_ms)
            before = len(self._lines)
            self._apply(self._coordinator.tick(self._now_ms))
            self._tell_states()
            if len(self._lines) > before:
                self._lines.insert(before, f"@{self._now_ms}")
        self._now_ms = until_ms

    def _do_disconnect(self, words: Words) -> None:
        name = words.plain[0]
        requests = self._clients[name].requests
        for kind in ("join", "sync"):
            self._coordinator.disconnect((name, kind, requests), self._now_ms)

    def _do_hold(self, words: Words) -> None:
        self._is_holding = True

    def _do_durable(self, words: Words) -> None:
        self._is_holding = False
        self._committed = len(self._log)
        held, self._held = self._held, []
        for reply in held:
            if isinstance(reply, list):
                self._lines += [f"fetch: {line}" for line in reply]
            else:
                self._deliver(reply)

    def _do_refuse(self, words: Words) -> None:
        self._refuses_next = True

    def _do_fail(self, words: Words) -> None:
        assert self._committed < len(self._log), "nothing was held"
        waiting = [GroupReply(token, None) for token in self._coordinator._pending_replies]  # type: ignore[arg-type]
        for reply in [*self._held, *waiting]:
            if isinstance(reply, list):
                self._say("fetch: CoordinatorNotAvailable")
            else:
                self._deliver(GroupReply(reply.reply_to, CoordinatorNotAvailableError("g")))
        self._do_restart(words)

    def _do_crash(self, words: Words) -> None:
        settings: dict[str, Any] = {name: int(value) for name, value in words.named.items()}
        self._config = replace(self._config, **settings)
        del self._log[self._committed :]
        self._held = []
        self._is_holding = False
        self._states = {}
        self._coordinator = GroupCoordinatorShard(self._config, self._random)

    def _do_load(self, words: Words) -> None:
        for entry in self._log:
            self._replay(entry)
        self._coordinator.finish_loading(self._now_ms)

    def _do_restart(self, words: Words) -> None:
        self._do_crash(words)
        self._do_load(words)

    # Effects

    def _apply(self, outcome: GroupOutcome, request: Token | None = None) -> None:
        self._delivered.clear()
        for write in outcome.writes:
            self._write(write)
        for reply in outcome.replies:
            self._release(reply)
        if request is not None and request not in self._delivered:
            self._say(f"{request[0]}.{request[1]}: waits")

    def _write(self, write: GroupWrite, producer_id: int | None = None) -> None:
        within = "" if producer_id is None else f", by producer {producer_id}"
        for line in self._trace.write(write):
            self._say(line + within)
        if self._refuses_next:
            self._refuses_next = False
            self._say("append refused")
            self._apply(self._coordinator.append_refused(write, self._now_ms))
            return
        self._append(Entry(write, producer_id))
        for reply in write.replies:
            self._release(reply)

    def _append(self, entry: Entry) -> None:
        self._log.append(entry)
        self._replay(entry)
        if not self._is_holding:
            self._committed = len(self._log)

    def _release(self, reply: GroupReply) -> None:
        if self._committed < len(self._log):
            self._held.append(reply)
        else:
            self._deliver(reply)

    def _replay(self, entry: Entry) -> None:
        if entry.producer_id is None:
            for key, value in entry.write.records:
                self._coordinator.replay(key, value)
            return
        for key, value in entry.write.records:
            self._coordinator.replay(key, value, ProducerIdentity(ProducerId(entry.producer_id), ProducerEpoch(0)))
        if entry.is_commit is not None:
            self._coordinator.replay_marker(
                ProducerIdentity(ProducerId(entry.producer_id), ProducerEpoch(0)), is_commit=entry.is_commit
            )

    def _deliver(self, reply: GroupReply) -> None:
        assert isinstance(reply.reply_to, tuple)
        self._delivered.add(reply.reply_to)
        name, kind, number = reply.reply_to
        client = self._clients[name]
        late = "" if number == client.requests else " (before)"
        self._say(f"{name}.{kind}{late}: {self._trace.result(reply.result)}")
        if late:
            return
        if isinstance(reply.result, JoinResult):
            client.member_id, client.generation = reply.result.member_id, reply.result.generation
        elif isinstance(reply.result, MemberIdRequiredError):
            client.member_id = reply.result.member_id

    def _tell_states(self) -> None:
        try:
            groups = [group.group_id for group in self._coordinator.list_groups()]
        except CoordinatorError:
            return
        for group_id in dict.fromkeys([*self._states, *groups]):
            state = self._trace.description(self._coordinator.describe(group_id))
            if self._states.get(group_id) != state:
                self._say(state)
                self._states[group_id] = state
            if group_id not in groups:
                del self._states[group_id]

    def _say(self, line: str) -> None:
        self._lines.append(line)

    # Parsing

    def _group(self, words: Words) -> str:
        return words.named.get("group", "g")

    def _token(self, name: str, kind: str) -> Token:
        client = self._clients[name]
        client.requests += 1
        return name, kind, client.requests

    def _member_id(self, name: str, words: Words) -> str:
        word = words.named.get("member")
        if word is None:
            return self._clients[name].member_id
        return "" if word == "-" else self._trace.ids.get(word, word)

    def _assignment(self, text: str) -> tuple[str, bytes]:
        name, _, assignment = text.partition(":")
        return self._trace.ids.get(name) or self._clients[name].member_id, assignment.encode()

    def _started(self, coordinator: GroupCoordinatorShard) -> GroupCoordinatorShard:
        coordinator.finish_loading(now_ms=0)
        return coordinator


def _protocol(text: str) -> tuple[str, bytes]:
    """`range(t,u)`: the name, and a subscription of a consumer to these topics."""
    name, _, topics = text.rstrip(")").partition("(")
    parts = [topic.encode() for topic in topics.split(",") if topic]
    return name, struct.pack(">hi", 0, len(parts)) + b"".join(struct.pack(">h", len(part)) + part for part in parts)


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def _offset(partition: str, value: str) -> OffsetToCommit:
    offset, _, note = value.partition(":")
    return OffsetToCommit(_partition(partition), Offset(int(offset)), metadata=note)
