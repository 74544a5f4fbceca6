"""A correct broker, and the history that its clients observe: random, and the same for the same seed.

It has everything that a real history has: missing responses (with or without the write), retries that wrote twice,
refusals, delayed queries, commits whose response was lost, members that start over, kills; transactions that were
committed, aborted, refused, left open, or committed by a producer that had been fenced.
"""

from random import Random

from logbrook.model import TopicPartition
from logbrook.testing.history import Event
from logbrook.testing.history.events import (
    Acknowledged,
    BrokerKilled,
    BrokerStarted,
    Committed,
    CommittedSeen,
    CommitUnknown,
    Failed,
    FinalCommittedRead,
    FinalMarkers,
    FinalRead,
    FinalTopics,
    LatestSeen,
    Polled,
    ProducerStarted,
    Resumed,
    Sent,
    TopicCreated,
    TransactionAborted,
    TransactionalIdTaken,
    TransactionBegun,
    TransactionCommitted,
    TransactionFailed,
    TransactionUnknown,
    Unknown,
)

TOPIC = "events"
IDEMPOTENT = ("idempotent-0", "idempotent-1")
PLAIN = ("plain-0",)
TRANSACTIONAL_IDS = ("transactional-0", "transactional-1")
# The ends of a transaction, their frequency, and whether its values are visible then.
ENDS = {
    "committed": (10, True),
    "unknown, committed": (2, True),
    "unknown, aborted": (2, False),
    "aborted": (4, False),
    "refused": (2, False),
    "left": (2, False),
    "fenced": (2, False),
}
GROUPS = {"red": ("red-0", "red-1"), "blue": ("blue-0",)}


def good_history(seed: int, steps: int = 300, partitions: int = 3) -> list[Event]:
    return _World(Random(seed), partitions).run(steps)


class _World:
    def __init__(self, rng: Random, partitions: int) -> None:
        self.rng = rng
        self.events: list[Event] = []
        self.now_ns = 0
        # None is a transaction marker.
        self.logs: dict[TopicPartition, list[str | None]] = {TopicPartition(TOPIC, n): [] for n in range(partitions)}
        self.hidden: set[str | None] = {None}
        self.lives = dict.fromkeys(TRANSACTIONAL_IDS, 0)
        self.transactions = 0
        self.values = 0
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        # Readers by partition and group: their position, and the time since which they wait.
        self.owner: dict[tuple[str, TopicPartition], str] = {}
        self.position: dict[tuple[str, TopicPartition], int] = {}
        self.assigned_at_ns: dict[tuple[str, TopicPartition], int] = {}
        self.topics = {TOPIC: partitions}

    def run(self, steps: int) -> list[Event]:
        for producer in (*IDEMPOTENT, *PLAIN):
            self.events.append(ProducerStarted(self.tick(), producer, producer in IDEMPOTENT))
        for transactional_id in TRANSACTIONAL_IDS:
            self.take(transactional_id)
        for group in GROUPS:
            self.rebalance(group)
        choices = [self.write] * 8 + [self.transact] * 4 + [self.poll] * 10 + [self.commit] * 4 + [self.ask_latest] * 3
        choices += [self.ask_committed] * 2 + [self.some_rebalance, self.kill, self.create_topic]
        for _ in range(steps):
            self.rng.choice(choices)()
        self.events.append(FinalTopics(self.tick(), dict(self.topics)))
        for partition, log in self.logs.items():
            begun_at_ns, end = self.tick(), len(log)
            records = [(offset, value) for offset, value in enumerate(log) if value is not None]
            visible = [(offset, value) for offset, value in records if value not in self.hidden]
            markers = [offset for offset, value in enumerate(log) if value is None]
            self.events.append(FinalRead(self.tick(), begun_at_ns, partition, end, records))
            self.events.append(FinalCommittedRead(self.tick(), partition, end, visible))
            self.events.append(FinalMarkers(self.tick(), partition, markers))
        return self.events

    def tick(self) -> int:
        self.now_ns += self.rng.randint(1, 1000)
        return self.now_ns

    def some_partition(self) -> TopicPartition:
        return self.rng.choice(list(self.logs))

    def write(self) -> None:
        """Write a few values of one producer, all in flight before the first response."""
        producer, partition = self.rng.choice([*IDEMPOTENT, *PLAIN]), self.some_partition()
        values = []
        for _ in range(self.rng.randint(1, 5)):
            values.append(f"v{self.values}")
            self.values += 1
            self.events.append(Sent(self.tick(), producer, partition, values[-1]))
        for value in values:
            self.answer(producer, partition, value)

    def answer(self, producer: str, partition: TopicPartition, value: str) -> None:
        log = self.logs[partition]
        outcome = self.rng.random()
        if outcome < 0.05:
            self.events.append(Failed(self.tick(), producer, partition, value, "too large"))
            return
        if outcome < 0.15:
            self.events.append(Unknown(self.tick(), producer, partition, value, "disconnected"))
            return
        if producer in PLAIN and outcome < 0.25:
            log.append(value)
        log.append(value)
        if outcome < 0.35:
            self.events.append(Unknown(self.tick(), producer, partition, value, "timed out"))
        else:
            self.events.append(Acknowledged(self.tick(), producer, partition, len(log) - 1, value))

    def take(self, transactional_id: str) -> None:
        self.lives[transactional_id] += 1
        producer = self.producer_of(transactional_id)
        self.events.append(ProducerStarted(self.tick(), producer, True))
        self.events.append(TransactionalIdTaken(self.tick(), producer, transactional_id))

    def producer_of(self, transactional_id: str) -> str:
        return f"{transactional_id}.{self.lives[transactional_id]}"

    def transact(self) -> None:
        """Write a few values to several partitions and end the transaction; others write meanwhile."""
        transactional_id = self.rng.choice(TRANSACTIONAL_IDS)
        producer, transaction = self.producer_of(transactional_id), f"transaction {self.transactions}"
        self.transactions += 1
        end = self.rng.choices(list(ENDS), weights=[often for often, _ in ENDS.values()])[0]
        is_seen = ENDS[end][1]
        self.events.append(TransactionBegun(self.tick(), producer, transaction))
        touched = set()
        for _ in range(self.rng.randint(1, 6)):
            partition, value = self.some_partition(), f"v{self.values}"
            self.values += 1
            touched.add(partition)
            self.hidden.update(() if is_seen else (value,))
            self.events.append(Sent(self.tick(), producer, partition, value))
            self.answer_in_transaction(producer, partition, value, is_seen)
            if self.rng.random() < 0.2:
                self.write()
        self.end(end, transactional_id, producer, transaction)
        for partition in touched:
            self.logs[partition].append(None)

    def answer_in_transaction(self, producer: str, partition: TopicPartition, value: str, is_seen: bool) -> None:
        """Acknowledge a transaction. Its visible values are in the log, whatever the producer knows."""
        outcome = self.rng.random()
        if outcome < 0.1 and not is_seen:
            self.events.append(Failed(self.tick(), producer, partition, value, "too large"))
            return
        if outcome < 0.2 and not is_seen:
            self.events.append(Unknown(self.tick(), producer, partition, value, "disconnected"))
            return
        self.logs[partition].append(value)
        if outcome < 0.3:
            self.events.append(Unknown(self.tick(), producer, partition, value, "timed out"))
        else:
            self.events.append(Acknowledged(self.tick(), producer, partition, len(self.logs[partition]) - 1, value))

    def end(self, end: str, transactional_id: str, producer: str, transaction: str) -> None:
        if end in ("left", "fenced"):
            self.take(transactional_id)
        asked_at_ns, answered_at_ns = self.tick(), self.tick()
        if end == "committed":
            self.events.append(TransactionCommitted(answered_at_ns, asked_at_ns, producer, transaction))
        elif end == "aborted":
            self.events.append(TransactionAborted(answered_at_ns, producer, transaction))
        elif end == "refused":
            self.events.append(TransactionFailed(answered_at_ns, asked_at_ns, producer, transaction, "invalid state"))
        elif end != "left":
            self.events.append(TransactionUnknown(answered_at_ns, asked_at_ns, producer, transaction, end))

    def poll(self) -> None:
        group, partition = self.rng.choice(list(GROUPS)), self.some_partition()
        at = group, partition
        log, consumer = self.logs[partition], self.owner[at]
        for _ in range(self.rng.randint(1, 20)):
            offset = self.position[at]
            while offset < len(log) and log[offset] in self.hidden:
                offset += 1
            if offset == len(log):
                return
            value = log[offset]
            assert value is not None, "the end of a transaction is hidden"
            if at in self.assigned_at_ns:
                begun_at_ns = self.assigned_at_ns.pop(at)
                self.events.append(Resumed(self.tick(), begun_at_ns, consumer, group, partition, offset))
                self.events.append(Polled(self.now_ns, consumer, group, partition, offset, value))
            else:
                self.events.append(Polled(self.tick(), consumer, group, partition, offset, value))
            self.position[at] = offset + 1

    def commit(self) -> None:
        group, partition = self.rng.choice(list(GROUPS)), self.some_partition()
        at = group, partition
        offset, begun_at_ns = self.position[at], self.tick()
        if at in self.assigned_at_ns:
            return
        outcome = self.rng.random()
        if outcome > 0.1:
            self.committed[at] = offset
        if outcome > 0.2:
            self.events.append(Committed(self.tick(), begun_at_ns, group, partition, offset))
        else:
            self.events.append(CommitUnknown(self.tick(), begun_at_ns, group, partition, offset))

    def ask_latest(self) -> None:
        """Query the latest offset. Another operation may happen before or after the response."""
        partition, begun_at_ns = self.some_partition(), self.tick()
        before = len(self.logs[partition])
        if self.rng.random() < 0.5:
            self.write()
        offset = self.rng.choice((before, len(self.logs[partition])))
        self.events.append(LatestSeen(self.tick(), begun_at_ns, "prober", partition, offset))

    def ask_committed(self) -> None:
        group, partition, begun_at_ns = self.rng.choice(list(GROUPS)), self.some_partition(), self.tick()
        before = self.committed.get((group, partition))
        if self.rng.random() < 0.5:
            self.commit()
        offset = self.rng.choice((before, self.committed.get((group, partition))))
        self.events.append(CommittedSeen(self.tick(), begun_at_ns, "prober", group, partition, offset))

    def some_rebalance(self) -> None:
        self.rebalance(self.rng.choice(list(GROUPS)))

    def rebalance(self, group: str) -> None:
        for partition in self.logs:
            at = group, partition
            self.owner[at] = self.rng.choice(GROUPS[group])
            self.position[at] = self.committed.get(at, 0)
            self.assigned_at_ns[at] = self.tick()

    def kill(self) -> None:
        self.events.append(BrokerKilled(self.tick()))
        self.events.append(BrokerStarted(self.tick()))
        for group in GROUPS:
            self.rebalance(group)

    def create_topic(self) -> None:
        topic, partitions = f"topic-{len(self.topics)}", self.rng.randint(1, 3)
        self.topics[topic] = partitions
        self.events.append(TopicCreated(self.tick(), topic, partitions))
