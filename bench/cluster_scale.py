"""A cluster of 1,000 brokers in simulated time: elections after the loss of a broker and of a rack, and the metadata.

The rules are the real ones (`core.cluster`): the image, the elections that each broker finds among its own partitions,
and the transactions, applied to a real store state. Only time is simulated: a message takes half a round trip, and the
store commits one transaction after the other, as one Raft group does. Elections are counted from the moment at which
the brokers see that registrations are gone; before that come the leases (seconds) or a refused connection (none).
`python -m bench.cluster_scale` draws docs/images/cluster-elections.svg.
"""

import gc
import heapq
import tracemalloc
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.peers.charts import Panel, bars
from bench.peers.results import Row as ChartRow
from bench.rows import Row
from logbrook.core.cluster.elections import election_transactions, find_elections
from logbrook.core.cluster.image import (
    BrokerRegistration,
    ClusterImage,
    PartitionKey,
    broker_key,
    encode_broker,
    encode_partition,
    partition_key,
)
from logbrook.core.cluster.partition import new_partition
from logbrook.core.cluster.placement import place_replicas
from logbrook.core.store_state import StoreState
from logbrook.model.identifiers import BrokerId
from logbrook.ports.metadata_store import Delete, Put, Revision, StoreEntry, StoreTransaction

BROKERS = 1_000
RACKS = 10
PARTITIONS = (1_000, 10_000, 100_000)
_REPLICATION_FACTOR = 3
_PARTITIONS_PER_TOPIC = 100
# A transaction of etcd on three machines with SSDs, and the round trip to it.
_COMMIT_S = 0.001
_ROUND_TRIP_S = 0.001
# A replica with rank 1 waits so long for the one before it.
_RANK_DELAY_S = 0.05
_GOAL_S = 2.0
_CHART = Path(__file__).parents[1] / "docs" / "images" / "cluster-elections.svg"


class ElectionResult(NamedTuple):
    """Simulated seconds until the last partition has a leader, and what it took."""

    partitions: int
    seconds: float
    transactions: int
    conflicts: int
    bytes_written: int


class _StoreClock:
    """The time of a store that commits one transaction after the other."""

    def __init__(self) -> None:
        self._free_s = 0.0

    def commit(self, sent_s: float) -> float:
        """Return the time at which the sender of a transaction has the answer."""
        self._free_s = max(self._free_s, sent_s + _ROUND_TRIP_S / 2) + _COMMIT_S
        return self._free_s + _ROUND_TRIP_S / 2


class ScaleModel:
    """A cluster in which all brokers have the same image."""

    def __init__(self, partition_count: int, brokers: int = BROKERS, racks: int = RACKS) -> None:
        self.store = StoreState(Revision(1), history_max=1)
        self.image = ClusterImage()
        self.keys_of: dict[BrokerId, list[PartitionKey]] = defaultdict(list)
        self._racks = {BrokerId(number): f"rack-{number % racks}" for number in range(brokers)}
        for broker_id, rack in self._racks.items():
            registration = BrokerRegistration(f"broker-{broker_id}.example", 9092, rack, f"{broker_id:032x}")
            self._commit(StoreTransaction((), [Put(broker_key(broker_id), encode_broker(registration))]))
        for topic in range(0, partition_count, _PARTITIONS_PER_TOPIC):
            self._add_topic(topic, min(_PARTITIONS_PER_TOPIC, partition_count - topic))

    @property
    def metadata_bytes(self) -> int:
        """Size of all keys and values: what a broker loads when it starts."""
        return sum(len(key) + len(entry.value) for key, entry in self.store.entries.items())

    @property
    def change_bytes(self) -> float:
        """Mean size of a partition's key and value: what every broker receives when it changes."""
        sizes = [len(key) + len(entry.value) for key, entry in self.store.entries.items() if key[0] == "p"]
        return sum(sizes) / len(sizes)

    def rack_of(self, number: int) -> list[BrokerId]:
        return [broker_id for broker_id, rack in self._racks.items() if rack == f"rack-{number}"]

    def lose(self, lost: Iterable[BrokerId]) -> ElectionResult:
        """Delete registrations, and let the other brokers take over what was led there."""
        lost = set(lost)
        self._commit(StoreTransaction((), [Delete(broker_key(broker_id)) for broker_id in lost]))
        led = {key for key, entry in self.image.partitions.items() if entry.registration.leader in lost}
        clock = _StoreClock()
        # (time, broker, rank): at this time the broker tries to take over what has this rank for it.
        attempts = [
            (rank * _RANK_DELAY_S, broker_id, rank)
            for broker_id in self.image.brokers
            for rank in range(_REPLICATION_FACTOR)
        ]
        heapq.heapify(attempts)
        last_s, transactions, conflicts, written = 0.0, 0, 0, 0
        while attempts:
            now_s, broker_id, rank = heapq.heappop(attempts)
            transaction = self._next_transaction(broker_id, rank, led)
            if transaction is None:
                continue
            answered_s = clock.commit(now_s)
            transactions += 1
            if self._commit(transaction):
                last_s = max(last_s, answered_s)
                written += sum(len(put.key) + len(put.value) for put in transaction.operations if isinstance(put, Put))
            else:
                conflicts += 1
            heapq.heappush(attempts, (answered_s, broker_id, rank))
        assert all(self.image.has_live_leader(self.image.partitions[key].registration) for key in led)
        return ElectionResult(len(led), last_s, transactions, conflicts, written)

    def _next_transaction(self, broker_id: BrokerId, rank: int, led: set[PartitionKey]) -> StoreTransaction | None:
        epoch = self.image.brokers[broker_id].epoch
        keys = [key for key in self.keys_of[broker_id] if key in led]
        elections = find_elections(self.image, broker_id, epoch, lambda _key: 2, keys)
        due = [election for election in elections if election.rank <= rank]
        return next((transaction for _, transaction in election_transactions(due, broker_id, epoch)), None)

    def _add_topic(self, first: int, count: int) -> None:
        topic_id = first.to_bytes(16, "big")
        epochs = self.image.broker_epochs
        puts = []
        for number, replicas in enumerate(place_replicas(self._racks, count, _REPLICATION_FACTOR, start=first)):
            key = PartitionKey(topic_id, number)
            puts.append(Put(partition_key(key), encode_partition(new_partition(replicas, epochs.keys(), epochs))))
            for broker_id in replicas:
                self.keys_of[broker_id].append(key)
        self._commit(StoreTransaction((), puts))

    def _commit(self, transaction: StoreTransaction) -> bool:
        operations = self.store.decide(transaction)
        if operations is None:
            return False
        self.store.apply(Revision(self.store.revision + 1), operations)
        for operation in operations:
            self.image.replay(operation.key, self.store.entries.get(operation.key))
        return True


def run(partition_counts: Sequence[int] = PARTITIONS) -> list[Row]:
    rows: list[Row] = []
    for count in partition_counts:
        model = ScaleModel(count)
        title = f"{BROKERS:,} brokers, {count:,} partitions"
        rows.append(Row(f"{title}: metadata that a broker loads", model.metadata_bytes / 1e6, "MB"))
        rows.append(Row(f"{title}: memory of the image", image_mib(model.store.entries), "MiB"))
        rows.append(Row(f"{title}: bytes per change, to each broker", model.change_bytes, "B"))
        for name, lost in (("a broker", model.rack_of(1)[:1]), ("a rack", model.rack_of(2))):
            result = model.lose(lost)
            case = f"{title}, without {name}"
            rows.append(Row(f"{case}: partitions to elect", result.partitions, ""))
            rows.append(Row(f"{case}: simulated time", result.seconds, "s", _GOAL_S, higher_is_better=False))
            rows.append(Row(f"{case}: transactions", result.transactions, ""))
            rows.append(Row(f"{case}: of these refused", result.conflicts, ""))
    return rows


def image_mib(entries: dict[str, StoreEntry]) -> float:
    """Return the memory that an image of these entries takes, in MiB."""
    gc.collect()
    tracemalloc.start()
    try:
        image = ClusterImage()
        image.load(entries)
        return tracemalloc.get_traced_memory()[0] / (1 << 20)
    finally:
        tracemalloc.stop()


def write_chart(rows: Sequence[Row]) -> None:
    """Draw the time to elect by the number of partitions."""
    times = [row for row in rows if row.name.endswith("simulated time")]
    panels = [
        Panel(f"without {name}", tuple(_chart_row(row) for row in times if f"without {name}" in row.name))
        for name in ("a broker", "a rack")
    ]
    _CHART.write_text(bars(f"Time to elect new leaders in a cluster of {BROKERS:,} brokers (simulated)", panels))


def _chart_row(row: Row) -> ChartRow:
    partitions = row.name.split(", ")[1]
    return ChartRow("cluster", row.name, "time", "seconds", partitions, "", (row.value,))


if __name__ == "__main__":
    write_chart(run())
