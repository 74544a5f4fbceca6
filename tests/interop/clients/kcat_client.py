"""kcat, the command line tool. Each producer, reader and member is a process or more.

Records go in and come out through pipes: in with delimiters that no scenario uses in its data, out with their lengths.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.interop.clients.interface import (
    BEGINNING,
    END,
    PLAIN_PRODUCER,
    PLAIN_READER,
    Client,
    Feature,
    Headers,
    Member,
    MemberOptions,
    MortalMember,
    Outgoing,
    Producer,
    ProducerOptions,
    Reader,
    ReaderOptions,
    Received,
    Stored,
)
from tests.interop.clients.kcat_process import KcatProcess
from tests.interop.waiting import WITHIN_S, Deadline, wait_until

_END_OF_RECORD = "<|end|>"
_END_OF_KEY = "<|key|>"
# Partition, offset, timestamp and the lengths of key and value, then those two and the headers.
_FORMAT = "%p %o %T %K %S %k%s%h" + _END_OF_RECORD
_NUMBERS = re.compile(rb"(\d+) (\d+) (-?\d+) (-?\d+) (-?\d+) ")
_STORED = re.compile(r"Message delivered to partition (\d+)(?: \(offset (\d+)\))?")
# "rebalanced (memberid ...): assigned: t [0]", and in small steps "rebalanced: incremental assignment of 1 ...: t [0]".
_REBALANCED = re.compile(r"rebalanced.*?: (incremental )?(assign|revoke)(.*)")
_QUICK_CONSUMER = ("fetch.wait.max.ms=50", "fetch.error.backoff.ms=20", "auto.commit.interval.ms=50")


class KcatClient(Client):
    name = "kcat"
    lacks: Mapping[Feature, str] = {
        Feature.ADMIN: "it only produces, consumes and lists",
        Feature.TIMESTAMPS: "it always uses the current time",
        Feature.COMMIT: "it only commits automatically, and does not report it",
        Feature.CLIENT_SIDE_LIMIT: "it exits with an error text without a code",
        Feature.POLLING: "it polls in a loop of its own",
    }

    def __init__(self, path: str) -> None:
        self._path = path

    def producer(self, servers: str, options: ProducerOptions = PLAIN_PRODUCER) -> Producer:
        return KcatProducer(self._path, servers, options)

    def reader(
        self, servers: str, topic: str, starts: Mapping[int, int], options: ReaderOptions = PLAIN_READER
    ) -> Reader:
        return KcatReader(self._path, servers, topic, starts, options)

    def member(self, servers: str, topic: str, options: MemberOptions) -> Member:
        return KcatMember(self._path, servers, topic, options)

    def mortal_member(self, servers: str, topic: str, options: MemberOptions) -> MortalMember:
        return KcatMember(self._path, servers, topic, options)

    def topics(self, servers: str) -> dict[str, int]:
        listing = KcatProcess(self._path, servers, ["-L", "-J"])
        listing.finish()
        return {topic["topic"]: len(topic["partitions"]) for topic in json.loads(listing.output)["topics"]}

    def offsets_at(self, servers: str, topic: str, partitions: Sequence[int], timestamp_ms: int) -> dict[int, int]:
        words = [word for number in partitions for word in ("-t", f"{topic}:{number}:{timestamp_ms}")]
        query = KcatProcess(self._path, servers, ["-Q", *words])
        query.finish()
        offsets = re.findall(rb"\[(\d+)\] offset (-?\d+)", query.output)
        return {int(partition): int(offset) for partition, offset in offsets}

    def ends(
        self, servers: str, topic: str, partitions: Sequence[int], *, read_committed: bool = False
    ) -> dict[int, tuple[int, int]]:
        assert not read_committed, "it has no reader to ask with"
        first = self.offsets_at(servers, topic, partitions, BEGINNING)
        following = self.offsets_at(servers, topic, partitions, END)
        return {number: (first[number], following[number]) for number in partitions}


class _Kind(NamedTuple):
    """Properties that kcat can only set for a whole run, so that records are grouped by them."""

    headers: Headers
    sends_null: bool


class KcatProducer(Producer):
    def __init__(self, path: str, servers: str, options: ProducerOptions) -> None:
        self._path = path
        self._servers = servers
        self._settings = [
            f"compression.codec={options.codec}",
            f"acks={options.acks}",
            f"enable.idempotence={str(options.idempotent).lower()}",
            f"batch.size={options.batch_bytes}",
            f"linger.ms={options.linger_ms}",
            f"message.max.bytes={options.request_bytes_max}",
            f"message.timeout.ms={options.patience_ms}",
        ]
        if options.transactional_id is not None:
            self._settings.append(f"transactional.id={options.transactional_id}")
        # Grouped by topic and partition, so that the order within a partition is kept.
        self._runs: dict[tuple[str, int | None], tuple[_Kind, KcatProcess]] = {}
        self._stored: list[Stored] = []

    def send(self, records: Sequence[Outgoing]) -> None:
        for record in records:
            place = record.topic, record.partition
            kind = _Kind(record.headers, sends_null=record.value is None)
            if place in self._runs and self._runs[place][0] != kind:
                self._finish(place, WITHIN_S)
            if place not in self._runs:
                self._runs[place] = kind, self._begin(record.topic, record.partition, kind)
            key = b"" if record.key is None else record.key + _END_OF_KEY.encode()
            self._runs[place][1].write(key + (record.value or b"") + _END_OF_RECORD.encode())

    def flush(self, within_s: float = WITHIN_S) -> list[Stored]:
        for place in [*self._runs]:
            self._finish(place, within_s)
        stored, self._stored = self._stored, []
        return stored

    def close(self) -> None:
        for _, run in self._runs.values():
            run.stop()

    def _begin(self, topic: str, partition: int | None, kind: _Kind) -> KcatProcess:
        words: list[str | bytes] = ["-P", "-E", "-vv", "-D", _END_OF_RECORD, "-K", _END_OF_KEY, "-t", topic]
        words += [] if partition is None else ["-p", str(partition)]
        words += ["-Z"] if kind.sends_null else []
        for name, value in kind.headers:
            words += ["-H", name.encode() if value is None else name.encode() + b"=" + value]
        return KcatProcess(self._path, self._servers, words, self._settings)

    def _finish(self, place: tuple[str, int | None], within_s: float) -> None:
        _, run = self._runs.pop(place)
        run.finish(within_s)
        stored = _STORED.findall(run.errors.decode(errors="replace"))
        self._stored += [Stored(int(partition), int(offset or -1)) for partition, offset in stored]


class _Records:
    """The records in the output of a process, each returned once."""

    def __init__(self, process: KcatProcess) -> None:
        self._process = process
        self._position = 0

    def take(self) -> list[Received]:
        data = bytes(self._process.output[self._position :])
        records, at = [], 0
        while (parsed := _record_at(data, at)) is not None:
            record, at = parsed
            records.append(record)
        self._position += at
        return records


def _record_at(data: bytes, at: int) -> tuple[Received, int] | None:
    """Return the record at the position and the position of the next one; None if it is incomplete."""
    numbers = _NUMBERS.match(data, at)
    if numbers is None:
        return None
    partition, offset, timestamp_ms, key_length, value_length = map(int, numbers.groups())
    value_at = numbers.end() + max(0, key_length)
    headers_at = value_at + max(0, value_length)
    end = data.find(_END_OF_RECORD.encode(), headers_at)
    if end < 0:
        return None
    record = Received(
        partition,
        offset,
        None if key_length < 0 else data[numbers.end() : value_at],
        None if value_length < 0 else data[value_at:headers_at],
        _headers(data[headers_at:end]),
        timestamp_ms,
        is_log_append_time=None,
    )
    return record, end + len(_END_OF_RECORD)


class KcatReader(Reader):
    """A reader with one process per partition."""

    def __init__(self, path: str, servers: str, topic: str, starts: Mapping[int, int], options: ReaderOptions) -> None:
        self._path = path
        self._servers = servers
        self._topic = topic
        self._settings = [
            *_QUICK_CONSUMER,
            f"isolation.level={'read_committed' if options.read_committed else 'read_uncommitted'}",
            f"fetch.message.max.bytes={options.fetch_bytes_max}",
            f"fetch.max.bytes={options.fetch_bytes_max}",
            f"message.max.bytes={min(options.fetch_bytes_max, 1_000_000)}",
            "topic.auto.offset.reset=error",
        ]
        self._runs: dict[int, tuple[KcatProcess, _Records]] = {}
        for number, start in starts.items():
            self.seek(number, start)

    def poll(self, within_s: float) -> list[Received]:
        deadline = Deadline(within_s)
        received: list[Received] = []

        def look() -> bool:
            for process, records in self._runs.values():
                process.check()
                received.extend(records.take())
            return bool(received) or deadline.has_passed

        wait_until(look, "records of kcat", within_s + 1)
        return received

    def seek(self, partition: int, offset: int) -> None:
        """Replace the process by one that starts at the offset: kcat cannot seek."""
        if partition in self._runs:
            self._runs[partition][0].stop()
        start = {BEGINNING: "beginning", END: "end"}.get(offset, str(offset))
        words = ["-C", "-E", "-q", "-u", "-f", _FORMAT, "-t", self._topic, "-p", str(partition), "-o", start]
        process = KcatProcess(self._path, self._servers, words, self._settings)
        self._runs[partition] = process, _Records(process)

    def close(self) -> None:
        for process, _ in self._runs.values():
            process.stop()


class KcatMember(MortalMember):
    def __init__(self, path: str, servers: str, topic: str, options: MemberOptions) -> None:
        settings = [
            *_QUICK_CONSUMER,
            "topic.auto.offset.reset=earliest",
            f"enable.auto.commit={str(options.auto_commit).lower()}",
            f"session.timeout.ms={options.session_timeout_ms}",
            "heartbeat.interval.ms=50",
            f"max.poll.interval.ms={options.poll_interval_ms}",
            f"partition.assignment.strategy={'cooperative-sticky' if options.is_cooperative else 'range'}",
        ]
        if options.instance_id is not None:
            settings.append(f"group.instance.id={options.instance_id}")
        self._process = KcatProcess(path, servers, ["-G", options.group, "-E", "-u", "-f", _FORMAT, topic], settings)
        self._records = _Records(self._process)

    @property
    def assignment(self) -> frozenset[int]:
        held: frozenset[int] = frozenset()
        for is_incremental, change, partitions in _REBALANCED.findall(self._process.errors.decode(errors="replace")):
            numbers = frozenset(int(number) for number in re.findall(r"\[(\d+)\]", partitions))
            if change == "revoke":
                held -= numbers
            else:
                held = held | numbers if is_incremental else numbers
        return held

    def poll(self, within_s: float) -> list[Received]:
        deadline = Deadline(within_s)
        received: list[Received] = []

        def look() -> bool:
            self._process.check()
            received.extend(self._records.take())
            return bool(received) or deadline.has_passed

        wait_until(look, "records of kcat", within_s + 1)
        return received

    def commit(self) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.stop()


def _headers(text: bytes) -> Headers:
    """Parse `name=value`, separated by commas; the scenarios have no commas in names and values."""
    pairs = [header.split(b"=", 1) for header in text.split(b",") if header]
    return tuple((name.decode(), None if value == b"NULL" else value) for name, value in pairs)
