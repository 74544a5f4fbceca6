"""A fetch session with idle partitions against one that reads every partition in every fetch: the answers are the same.

Both sessions are on one broker and send the same requests, with any changes in between: of logs, topics, ACLs, leader
epochs, and of what the consumer asks for. The clock stands still, so idle partitions are never swept: what is not
reported to the session would be missing from its answers.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logbrook.core.acls import AclBinding, AclOperation, PatternType, PermissionType, ResourceType
from logbrook.core.fetch_sessions import FetchContext
from logbrook.core.session_partitions import CachedPartition
from logbrook.model import TopicPartition
from logbrook.model.identifiers import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from logbrook.model.security import Principal
from logbrook.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from logbrook.records.builder import build_batch
from logbrook.records.control import build_marker
from logbrook.records.record import Record
from logbrook.server.session import ConnectionSession
from logbrook.storage.batch_set import AppendOrigin
from logbrook.storage.errors import CorruptLogError, StorageError
from logbrook.storage.log import Log
from logbrook.storage.retention import apply_retention
from logbrook.storage.truncation import truncate
from logbrook.testing.clock import FakeClock
from tests.unit.server.handler_kit import HandlerShell

PARTITIONS = 2
TOPICS = 2
LONG_MS = 600_000
READERS = (Principal("User", "first"), Principal("User", "second"))
# The last version with topic names, and the last one.
VERSIONS = (12, FetchRequest.VERSIONS.last)
TURNS = 6


class AnswersOfAll:
    """While `is_on`, fetches make no partition idle."""

    is_on = False


@pytest.fixture(scope="module")
def shell() -> Iterator[HandlerShell]:
    config = {
        "storage": {"durability": "interval"},
        "security": {"authorization": True, "super_users": "User:admin"},
        "log": {"segment_bytes": 1 << 14},
    }
    with HandlerShell(config, clock=FakeClock()) as shell, pytest.MonkeyPatch.context() as patch:
        answered = FetchContext.answered

        def answered_or_not(self: FetchContext, partition: CachedPartition, *, has_news: bool, is_at_end: bool) -> None:
            answered(self, partition, has_news=has_news, is_at_end=is_at_end and not AnswersOfAll.is_on)

        patch.setattr(FetchContext, "answered", answered_or_not)
        yield shell
        sessions = shell.services.fetch_sessions
        sessions.validate()
        assert (len(sessions), len(sessions.watches)) == (0, 0)
        assert len(shell.services.fetch_purgatory) == 0


@dataclass
class Request:
    """The content of a fetch, without its session."""

    offsets: dict[tuple[int, int], int] = field(default_factory=dict)
    forgotten: set[tuple[int, int]] = field(default_factory=set)
    isolation_level: int = 0
    reader: int = 0
    bytes_max: int = 1 << 20
    min_bytes: int = 1
    # The leader epoch that the consumer knows is the current one, not -1.
    has_epoch: bool = False


class Session:
    """One of the two sessions: it counts epochs."""

    def __init__(self, world: "World", version: int, *, reads_all: bool) -> None:
        self._world = world
        self._version = version
        self._reads_all = reads_all
        self._session_id = 0
        self._epoch = 0
        shell = world.shell
        self.clients = [shell.client(session=ConnectionSession("127.0.0.1", principal=reader)) for reader in READERS]

    def fetch(self, asked: Request) -> list[Any] | int:
        client = self.clients[asked.reader]
        with reading_all(self._reads_all):
            return self._answer(client.request(self._request(asked), FetchResponse, self._version))

    def begin(self, asked: Request) -> Callable[[], list[Any] | int | None]:
        """Begin a fetch that waits. Return a function that returns the answer if there is one, or gives up."""
        client = self.clients[asked.reader]
        with reading_all(self._reads_all):
            sent = client.send(self._request(asked, wait_ms=LONG_MS), FetchResponse, self._version)

        def end() -> list[Any] | int | None:
            if sent.frame.done():
                return self._answer(client.receive(sent))
            client.close()
            self._epoch += 1
            return None

        return end

    def close(self) -> None:
        self.clients[0].request(FetchRequest(session_id=self._session_id), FetchResponse, self._version)
        for client in self.clients:
            client.close()

    def _answer(self, response: FetchResponse) -> list[Any] | int:
        if response.error_code:
            return response.error_code
        self._session_id, self._epoch = response.session_id, self._epoch + 1
        if self._session_id == 0:
            self._epoch = 0
        return [
            (topic.topic, topic.topic_id, [_content(partition) for partition in topic.partitions])
            for topic in response.responses
        ]

    def _request(self, asked: Request, wait_ms: int = 0) -> FetchRequest:
        world = self._world
        wanted: dict[int, list[FetchPartition]] = {}
        epoch = world.shell.services.appender.leader_epoch if asked.has_epoch else -1
        for (topic, number), offset in asked.offsets.items():
            partition = FetchPartition(
                partition=number, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
            )
            wanted.setdefault(topic, []).append(partition)
        forgotten: dict[int, list[int]] = {}
        for topic, number in sorted(asked.forgotten):
            forgotten.setdefault(topic, []).append(number)
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=asked.min_bytes,
            max_bytes=asked.bytes_max,
            isolation_level=asked.isolation_level,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=[
                FetchTopic(topic=world.names[topic], topic_id=world.ids[topic], partitions=partitions)
                for topic, partitions in wanted.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=world.names[topic], topic_id=world.ids[topic], partitions=numbers)
                for topic, numbers in forgotten.items()
            ],
        )


def _content(partition: Any) -> Any:
    # Messages have no equality.
    fields = {field.name: repr(getattr(partition, field.name)) for field in partition.FIELDS}
    return {**fields, "records": bytes(partition.records or b"")}


class reading_all:  # noqa: N801 - a context manager
    def __init__(self, is_on: bool) -> None:
        self._is_on = is_on

    def __enter__(self) -> None:
        AnswersOfAll.is_on = self._is_on

    def __exit__(self, *_: object) -> None:
        AnswersOfAll.is_on = False


class World:
    """Topics, their logs, and all that can happen to them."""

    _numbers = count()

    def __init__(self, shell: HandlerShell) -> None:
        self.shell = shell
        number = next(self._numbers)
        self.names = [f"topic-{number}-{topic}" for topic in range(TOPICS)]
        for name in self.names:
            shell.create(name, PARTITIONS)
        self.ids = [shell.services.topics.metadata.topic(name).id for name in self.names]
        self._sequences: dict[tuple[bytes, int, int], int] = {}
        self._allowed: set[AclBinding] = set()
        for reader in READERS:
            self.allow(0, reader, True)
            self.allow(1, reader, True)

    def close(self) -> None:
        for acl in list(self._allowed):
            self._replay(acl, False)
        for topic in range(TOPICS):
            self.delete(topic)

    def log(self, topic: int, number: int) -> Log | None:
        partition = TopicPartition(self.names[topic], number)
        directory = self.shell.broker.directory
        log = directory.get(partition) if partition in directory else None
        return None if log is None or log.corruption is not None else log

    def _append(self, log: Log, batch: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        self.shell.call(lambda: self.shell.services.appender.append(log, batch, lambda _: None, origin))

    def append(self, topic: int, number: int, size: int) -> None:
        if (log := self.log(topic, number)) is not None:
            self._append(log, build_batch([Record(value=bytes(size), timestamp=1)]))

    def append_in_transaction(self, topic: int, number: int, producer: int) -> None:
        log = self.log(topic, number)
        if log is None:
            return
        key = (self.ids[topic], number, producer)
        sequence = self._sequences.get(key, 0)
        batch = build_batch(
            [Record(value=b"in a transaction", timestamp=1)],
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(0),
            base_sequence=sequence,
            transactional=True,
        )
        with suppress(StorageError):
            self._append(log, batch)
            self._sequences[key] = sequence + 1

    def end_transaction(self, topic: int, number: int, producer: int, is_commit: bool) -> None:
        log = self.log(topic, number)
        if log is not None:
            marker = build_marker(ProducerId(producer), ProducerEpoch(0), is_commit, 1, 0)
            with suppress(StorageError):
                self._append(log, marker, AppendOrigin.COORDINATOR)

    def truncate(self, topic: int, number: int, by: int) -> None:
        log = self.log(topic, number)
        if log is not None:
            self.shell.call(lambda: truncate(log, Offset(max(log.log_start_offset, log.log_end_offset - by))))
            self._sequences = {key: value for key, value in self._sequences.items() if key[1] != number}

    def delete_records(self, topic: int, number: int, offset: int) -> None:
        partition = DeleteRecordsPartition(partition_index=number, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=self.names[topic], partitions=[partition])])
        admin = self.shell.client(session=ConnectionSession("127.0.0.1", principal=Principal("User", "admin")))
        with closing(admin):
            admin.request(request, DeleteRecordsResponse)

    def retain(self, topic: int, number: int) -> None:
        log = self.log(topic, number)
        if log is not None:
            log.config = replace(log.config, retention_bytes=0)
            self.shell.call(log.roll)
            # Only what is synced is removed.
            self.shell.call(self.shell.broker.directory.members[0].checkpoint)
            self.shell.call(lambda: apply_retention(log, self.shell.services.clock.now_ms()))

    def quarantine(self, topic: int, number: int) -> None:
        log = self.log(topic, number)
        if log is not None:
            error = CorruptLogError(log.partition, log.active.path, log.active.size, log.log_end_offset, "for a test")
            self.shell.call(lambda: log.quarantine(error))

    def repair(self, topic: int, number: int) -> None:
        partition = TopicPartition(self.names[topic], number)
        directory = self.shell.broker.directory
        if partition in directory and directory.get(partition).corruption is not None:
            self.shell.call(lambda: directory.members[0].repair(partition))

    def delete(self, topic: int) -> None:
        if self.names[topic] in self.shell.services.topics.metadata.topics:
            self.shell.run(self.shell.services.topics.delete(self.names[topic]))

    def create(self, topic: int, keeps_id: bool) -> None:
        """Create a topic again. The consumer asks for the new id from now on, or for the old one."""
        name = self.names[topic]
        if name not in self.shell.services.topics.metadata.topics:
            self.shell.create(name, PARTITIONS)
            if not keeps_id:
                self.ids[topic] = self.shell.services.topics.metadata.topic(name).id

    def grow(self, topic: int) -> None:
        """Add a partition. Consumers may have asked for it before, and got an error."""
        name = self.names[topic]
        known = self.shell.services.topics.metadata.topics.get(name)
        if known is not None and known.partition_count == PARTITIONS:
            self.shell.run(self.shell.services.topics.add_partitions(name, PARTITIONS + 1))

    def allow(self, topic: int, reader: Principal, is_allowed: bool) -> None:
        acl = AclBinding(
            ResourceType.TOPIC,
            PatternType.LITERAL,
            self.names[topic],
            str(reader),
            "*",
            AclOperation.READ,
            PermissionType.ALLOW,
        )
        self._replay(acl, is_allowed)

    def _replay(self, acl: AclBinding, is_allowed: bool) -> None:
        self.shell.services.security.acls.replay(acl.key, b"{}" if is_allowed else None)
        (self._allowed.add if is_allowed else self._allowed.discard)(acl)

    def begin_epoch(self) -> None:
        appender = self.shell.services.appender
        appender.leader_epoch = LeaderEpoch(appender.leader_epoch + 1)


TOPIC = st.integers(0, TOPICS - 1)
# One more than the topics have at first.
NUMBER = st.integers(0, PARTITIONS)
PRODUCER = st.integers(7, 8)
KEY = st.tuples(TOPIC, NUMBER)
REQUEST = st.builds(
    Request,
    st.dictionaries(KEY, st.integers(0, 5), max_size=3),
    st.sets(KEY, max_size=1),
    st.integers(0, 1),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([1 << 20, 1 << 20, 150]),
    st.sampled_from([1, 1, 250]),
    st.sampled_from([False, False, True]),
)
# Most fetches of a consumer only continue: as the last one, without names.
CONTINUED = st.none()
CHANGE = st.one_of(
    st.tuples(st.just("append"), TOPIC, NUMBER, st.sampled_from([10, 100])),
    st.tuples(st.just("append"), TOPIC, NUMBER, st.sampled_from([10, 100])),
    st.tuples(st.just("append_in_transaction"), TOPIC, NUMBER, PRODUCER),
    st.tuples(st.just("append_in_transaction"), TOPIC, NUMBER, PRODUCER),
    st.tuples(st.just("end_transaction"), TOPIC, NUMBER, PRODUCER, st.booleans()),
    st.tuples(st.just("end_transaction"), TOPIC, NUMBER, PRODUCER, st.booleans()),
    st.tuples(st.just("truncate"), TOPIC, NUMBER, st.integers(1, 3)),
    st.tuples(st.just("delete_records"), TOPIC, NUMBER, st.integers(-1, 3)),
    st.tuples(st.just("retain"), TOPIC, NUMBER),
    st.tuples(st.just("quarantine"), TOPIC, NUMBER),
    st.tuples(st.just("repair"), TOPIC, NUMBER),
    st.tuples(st.just("delete"), TOPIC),
    st.tuples(st.just("create"), TOPIC, st.booleans()),
    st.tuples(st.just("grow"), TOPIC),
    st.tuples(st.just("allow"), TOPIC, st.sampled_from(READERS), st.booleans()),
    st.tuples(st.just("begin_epoch")),
)
FETCH = st.tuples(st.just("fetch"), st.one_of(CONTINUED, CONTINUED, REQUEST))
# A change while both wait.
WAIT = st.tuples(st.just("wait"), st.one_of(CONTINUED, CONTINUED, REQUEST), st.lists(CHANGE, max_size=2))
# The consumer reads on, to where the partitions end, and then they are idle.
READ_ON = st.tuples(st.just("read_on"), st.integers(0, 1))
ROUND = st.tuples(READ_ON | st.none(), st.lists(CHANGE, max_size=2), st.one_of(FETCH, FETCH, WAIT))


class Comparison:
    def __init__(self, shell: HandlerShell, version: int) -> None:
        self._shell = shell
        self.world = World(shell)
        self.sessions = [Session(self.world, version, reads_all=reads_all) for reads_all in (False, True)]
        self._last = Request()

    def close(self) -> None:
        for session in self.sessions:
            session.close()
        self.world.close()

    def step(self, name: str, *arguments: Any) -> None:
        if name == "fetch":
            self.fetch(arguments[0])
        elif name == "read_on":
            self.read_on(arguments[0])
        elif name == "wait":
            self._wait(*arguments)
        else:
            getattr(self.world, name)(*arguments)
        self._shell.services.fetch_sessions.validate()

    def read_on(self, isolation_level: int) -> None:
        """Move to the ends of all partitions, so that the next fetch finds them idle."""
        self.fetch(Request(self._ends(isolation_level), isolation_level=isolation_level))
        self.fetch()

    def fetch(self, asked: Request | None = None) -> list[Any] | int:
        """Fetch in both sessions, by default as the last time. Return their answer, which is the same."""
        asked = self._continued(asked)
        answers, expected = (session.fetch(asked) for session in self.sessions)
        assert answers == expected
        return expected

    def _continued(self, asked: Request | None) -> Request:
        self._last = replace(self._last, offsets={}, forgotten=set()) if asked is None else asked
        return self._last

    def _wait(self, asked: Request | None, changes: list[Any]) -> None:
        asked = self._continued(asked)
        ends = [session.begin(asked) for session in self.sessions]
        for change in changes:
            self.step(*change)
        self._shell.run(_turns())
        answers, expected = (end() for end in ends)
        assert answers == expected

    def _ends(self, isolation_level: int) -> dict[tuple[int, int], int]:
        ends: dict[tuple[int, int], int] = {}
        for topic in range(TOPICS):
            for number in range(PARTITIONS):
                log = self.world.log(topic, number)
                if log is not None:
                    ends[topic, number] = log.last_stable_offset if isolation_level else log.high_watermark
        return ends


async def _turns() -> None:
    """Run the callbacks that are due: what is woken is answered, and the rest waits."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


@pytest.mark.parametrize("version", VERSIONS)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(rounds=st.lists(ROUND, min_size=2, max_size=20))
def test_a_session_with_idle_partitions_answers_like_one_that_reads_all(
    shell: HandlerShell, version: int, rounds: list[tuple[Any, ...]]
) -> None:
    with closing(Comparison(shell, version)) as both:
        everything = {(topic, number): 0 for topic in range(TOPICS) for number in range(PARTITIONS)}
        both.fetch(Request(everything))
        for read_on, changes, fetch in rounds:
            for step in (read_on, *changes, fetch):
                if step is not None:
                    both.step(*step)
        for isolation_level in (0, 1):
            both.fetch(Request(isolation_level=isolation_level))


CHANGES = [
    ("append", 0, 0, 10),
    ("end_transaction", 0, 1, 7, True),
    ("end_transaction", 0, 1, 7, False),
    ("truncate", 0, 0, 1),
    ("delete_records", 0, 0, 1),
    ("retain", 0, 0),
    ("quarantine", 0, 0),
    ("delete", 0),
    ("allow", 0, READERS[0], False),
    ("begin_epoch",),
]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: "-".join(map(str, change[:1])))
def test_a_change_of_an_idle_partition_is_in_the_next_answer(
    shell: HandlerShell, change: tuple[Any, ...], waits: bool
) -> None:
    with closing(Comparison(shell, VERSIONS[-1])) as both:
        both.fetch(Request({(topic, number): 0 for topic in range(TOPICS) for number in range(PARTITIONS)}))
        both.world.append(0, 0, 10)
        both.world.append_in_transaction(0, 1, 7)
        both.read_on(1)
        # Everything is idle, and the consumer has told its leader epoch.
        both.fetch(Request({(0, 0): 1}, isolation_level=1, has_epoch=True))
        assert both.fetch() == []
        if waits:
            both.step("wait", None, [change])
        else:
            both.step(*change)
        assert both.fetch() != []


def test_a_partition_that_is_created_again_is_read_by_its_name(shell: HandlerShell) -> None:
    with closing(Comparison(shell, VERSIONS[0])) as both:
        both.fetch(Request({(0, 0): 0}))
        assert both.fetch() == []
        both.world.delete(0)
        assert both.fetch() == both.fetch() != []
        both.world.create(0, keeps_id=False)
        assert both.fetch() != []
        assert both.fetch() == []
        both.world.append(0, 0, 10)
        assert both.fetch() != []


def test_the_comparison_sees_a_change_that_is_not_reported(shell: HandlerShell) -> None:
    """Without this the test above could not fail."""
    with closing(Comparison(shell, VERSIONS[-1])) as both:
        both.fetch(Request({(0, 0): 0, (0, 1): 0}))
        both.fetch(Request())
        watches = shell.services.fetch_sessions.watches
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(watches), "fire", lambda _self, _changed: ())
            both.world.append(0, 0, 10)
            with pytest.raises(AssertionError):
                both.fetch()
