"""Interpreter of transaction scenarios: one coordinator shard, its log, and scripted producers.

Commands and their options:

    config NAME=VALUE ...                   the coordinator's settings; the first command
    init PRODUCER [goes-on] [timeout=MS]    `goes-on`: with its current producer id and epoch (KIP-360)
    add PRODUCER TOPIC-PARTITION ...
    write PRODUCER TOPIC-PARTITION          the verification by a Produce request
    commit PRODUCER | abort PRODUCER        [v=4]: the epoch is not bumped; [deaf]: the response is lost
    as PRODUCER PRODUCER-ID/EPOCH           set its producer id and epoch
    skip PRODUCER EPOCH                     set its epoch, as if the earlier ones were used
    list [STATE ...] [pattern=P] [longer=MS] | describe
    hold | mark                             stop writing markers; write all that wait
    advance MS                              let time pass, with a tick at each deadline
    crash | load | restart                  only the log survives; `load` writes the missing markers

The transactional id is `x`, or `id=NAME`. A producer keeps the producer id and epoch of its last response.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from logbrook.config import TransactionConfig
from logbrook.core.coordinator import CoordinatorRecord
from logbrook.core.transactions.errors import TransactionError
from logbrook.core.transactions.messages import InitRequest, TransactionMarkers
from logbrook.core.transactions.records import decode_key, decode_value, encode_key, encode_value
from logbrook.core.transactions.shard import TransactionCoordinatorShard
from logbrook.model import TopicPartition
from logbrook.model.identifiers import ProducerEpoch, ProducerId


@dataclass(slots=True)
class Producer:
    producer_id: ProducerId = ProducerId(-1)
    producer_epoch: ProducerEpoch = ProducerEpoch(-1)


@dataclass(slots=True)
class Words:
    """A command's words: plain ones, and those of the form key=value."""

    plain: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)

    @property
    def transactional_id(self) -> str:
        return self.named.get("id", "x")

    def take(self, word: str) -> bool:
        """Remove a plain word. Return True if it was present."""
        is_present = word in self.plain
        if is_present:
            self.plain.remove(word)
        return is_present


class TransactionWorld:
    def __init__(self) -> None:
        self._config = TransactionConfig()
        self._coordinator = TransactionCoordinatorShard(self._config)
        self._coordinator.finish_loading(0)
        self._now_ms = 0
        self._log: list[CoordinatorRecord] = []
        self._producers: dict[str, Producer] = {}
        self._last_producer_id = 0
        self._holds = False
        self._lines: list[str] = []

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
            getattr(self, "_do_" + verb)(words)
        except TransactionError as error:
            self._say(type(error).__name__.removesuffix("Error"))
        self._coordinator.validate()
        return self._lines

    # Requests

    def _do_init(self, words: Words) -> None:
        goes_on = words.take("goes-on")
        producer = self._producer(words)
        known = (producer.producer_id, producer.producer_epoch) if goes_on else (ProducerId(-1), ProducerEpoch(-1))
        request = InitRequest(words.transactional_id, int(words.named.get("timeout", "60000")), *known)
        decision = self._coordinator.init_producer(request, self._fresh_id(words), self._now_ms)
        self._append(decision.records)
        if decision.result is None:
            self._finish(words.transactional_id)
            fresh_id = self._fresh_id(words)
            decision = self._coordinator.init_producer(request, fresh_id, self._now_ms, decision.aborted)
            self._append(decision.records)
        assert decision.result is not None
        self._tell(words, decision.result.producer_id, decision.result.producer_epoch)

    def _do_add(self, words: Words) -> None:
        producer = self._producer(words)
        partitions = [_partition(word) for word in words.plain[1:]]
        facts = (words.transactional_id, producer.producer_id, producer.producer_epoch)
        self._append(self._coordinator.add_partitions(*facts, partitions, self._now_ms))

    def _do_write(self, words: Words) -> None:
        producer = self._producer(words)
        facts = (words.transactional_id, producer.producer_id, producer.producer_epoch)
        self._coordinator.check_partition(*facts, _partition(words.plain[1]))

    def _do_commit(self, words: Words) -> None:
        self._end(words, is_commit=True)

    def _do_abort(self, words: Words) -> None:
        self._end(words, is_commit=False)

    def _end(self, words: Words, *, is_commit: bool) -> None:
        is_deaf = words.take("deaf")
        producer = self._producer(words)
        decision = self._coordinator.end(
            words.transactional_id,
            ProducerId(producer.producer_id),
            ProducerEpoch(producer.producer_epoch),
            is_commit=is_commit,
            bumps_epoch=int(words.named.get("v", "5")) >= 5,
            next_producer_id=self._fresh_id(words),
            now_ms=self._now_ms,
        )
        self._append(decision.records)
        if decision.records and not self._holds:
            self._finish(words.transactional_id)
        if not is_deaf:
            self._tell(words, decision.result.producer_id, decision.result.producer_epoch)

    def _do_list(self, words: Words) -> None:
        longer_ms = int(words.named.get("longer", "-1"))
        pattern = words.named.get("pattern")
        for listing in self._coordinator.list_transactions(words.plain, (), longer_ms, pattern, now_ms=self._now_ms):
            self._say(f"{listing.transactional_id}: {listing.state}, of producer {listing.producer_id}")

    def _do_describe(self, words: Words) -> None:
        facts = self._coordinator.describe(words.transactional_id)
        partitions = " ".join(map(str, sorted(facts.partitions))) or "nothing"
        self._say(
            f"{facts.state} by {facts.producer_id}/{facts.producer_epoch} since {facts.start_ms}, "
            f"{facts.timeout_ms} ms at most: {partitions}"
        )

    # Environment

    def _do_as(self, words: Words) -> None:
        producer_id, _, epoch = words.plain[1].partition("/")
        self._producers[words.plain[0]] = Producer(ProducerId(int(producer_id)), ProducerEpoch(int(epoch)))

    def _do_skip(self, words: Words) -> None:
        producer = self._producer(words)
        producer.producer_epoch = ProducerEpoch(int(words.plain[1]))
        value = dict(self._log)[encode_key(words.transactional_id)]
        assert value is not None
        before = decode_value(words.transactional_id, value)
        after = replace(
            before, producer_epoch=ProducerEpoch(producer.producer_epoch), last_producer_epoch=ProducerEpoch(-1)
        )
        self._append([(encode_key(words.transactional_id), encode_value(after))])

    def _do_config(self, words: Words) -> None:
        settings: dict[str, Any] = {name: int(value) for name, value in words.named.items()}
        self._config = TransactionConfig(**settings)
        self._do_restart(words)

    def _do_hold(self, words: Words) -> None:
        self._holds = True

    def _do_mark(self, words: Words) -> None:
        self._holds = False
        for transactional_id in self._coordinator.prepared_ids():
            self._finish(transactional_id)

    def _do_advance(self, words: Words) -> None:
        until_ms = self._now_ms + int(words.plain[0])
        while (deadline_ms := self._coordinator.next_deadline_ms()) is not None and deadline_ms <= until_ms:
            self._now_ms = max(deadline_ms, self._now_ms)
            before = len(self._lines)
            due = self._coordinator.tick(self._now_ms)
            for transactional_id in due.timed_out:
                self._append(self._coordinator.abort_timed_out(transactional_id, self._now_ms))
                if not self._holds:
                    self._finish(transactional_id)
            for transactional_id in due.expired_ids:
                self._append(self._coordinator.remove_expired(transactional_id))
            if len(self._lines) > before:
                self._lines.insert(before, f"@{self._now_ms}")
        self._now_ms = until_ms

    def _do_crash(self, words: Words) -> None:
        self._coordinator = TransactionCoordinatorShard(self._config)
        self._holds = False

    def _do_load(self, words: Words) -> None:
        for key, value in self._log:
            self._coordinator.replay(key, value)
        self._coordinator.finish_loading(self._now_ms)
        self._do_mark(words)

    def _do_restart(self, words: Words) -> None:
        self._do_crash(words)
        self._do_load(words)

    # Effects

    def _append(self, records: list[CoordinatorRecord]) -> None:
        for key, value in records:
            self._log.append((key, value))
            self._coordinator.replay(key, value)
            self._say(_record(key, value))

    def _finish(self, transactional_id: str) -> None:
        markers = self._coordinator.markers(transactional_id)
        assert markers is not None
        for partition in markers.partitions:
            self._say(_marker(markers, partition))
        self._append(self._coordinator.complete(transactional_id, self._now_ms))

    def _tell(self, words: Words, producer_id: int, producer_epoch: int) -> None:
        name = words.plain[0]
        self._producers[name] = Producer(ProducerId(producer_id), ProducerEpoch(producer_epoch))
        self._say(f"{name} is {producer_id}/{producer_epoch}")

    def _say(self, line: str) -> None:
        self._lines.append(line)

    def _producer(self, words: Words) -> Producer:
        return self._producers.setdefault(words.plain[0], Producer())

    def _fresh_id(self, words: Words) -> ProducerId | None:
        if not self._coordinator.needs_producer_id(words.transactional_id):
            return None
        self._last_producer_id += 1
        return ProducerId(self._last_producer_id)


def _record(key: bytes, value: bytes | None) -> str:
    transactional_id = decode_key(key)
    assert transactional_id is not None
    if value is None:
        return f"{transactional_id}: forgotten"
    facts = decode_value(transactional_id, value)
    partitions = "".join(f" {partition}" for partition in sorted(facts.partitions))
    return f"{transactional_id}: {facts.state} by {facts.producer_id}/{facts.producer_epoch}{partitions}"


def _marker(markers: TransactionMarkers, partition: TopicPartition) -> str:
    decision = "commit" if markers.is_commit else "abort"
    return f"{partition} marker: {decision} of {markers.producer.producer_id}/{markers.producer.producer_epoch}"


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))
