"""Metrics of a broker in a cluster. A single node has none of their series.

Partitions are counted by their leaders, as in Kafka, so that the sum over all brokers is that of the cluster. Only
partitions without a leader are counted by every broker: there the maximum counts.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from logbrook.server.cluster.replicas import ReplicaManager
from logbrook.server.metrics.declaration import LabelValues, Metric, MetricKind, Number, latencies
from logbrook.server.metrics.scrape import Scrape, label_text
from logbrook.storage.probe import Histogram

# Partitions that are counted between two lines, where other work can run.
_STEP_PARTITIONS = 500


@dataclass(slots=True)
class _PartitionCounts:
    led: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    moving: int = 0
    offline: int = 0
    lag_max: int = 0


def _count(scrape: Scrape, replicas: ReplicaManager, counts: _PartitionCounts) -> Iterator[str]:
    """Count all partitions, and yield nothing after every few of them."""
    for number, (_, leader) in enumerate(replicas.leading.terms()):
        registration = leader.registration
        counts.led += 1
        counts.under_replicated += not set(registration.replicas) - set(registration.adding) <= set(registration.isr)
        counts.under_min_isr += not leader.has_enough_in_sync()
        counts.moving += registration.is_reassigning
        counts.lag_max = max(counts.lag_max, *leader.follower_lags().values(), 0)
        if number % _STEP_PARTITIONS == 0:
            yield ""
    topics = scrape.services.topics.metadata
    for number, (key, partition) in enumerate(list(replicas.image.partitions.items())):
        if not replicas.image.has_live_leader(partition.registration):
            topic = topics.topic_with_any_state(key.topic_id)
            counts.offline += topic is not None and not topic.is_hidden and key.partition < topic.partition_count
        if number % _STEP_PARTITIONS == 0:
            yield ""


def _partitions(name: str, help_: str, read: Callable[[_PartitionCounts], int]) -> Metric:
    def lines(scrape: Scrape) -> Iterator[str]:
        replicas = scrape.services.replicas
        if replicas is None:
            return
        counts = scrape.counted.get(_PartitionCounts)
        if not isinstance(counts, _PartitionCounts):
            counts = _PartitionCounts()
            yield from _count(scrape, replicas, counts)
            scrape.counted[_PartitionCounts] = counts
        yield f"{name} {read(counts)}\n"

    return Metric(name, MetricKind.GAUGE, help_, (), lines)


def _scalar(kind: MetricKind, name: str, help_: str, read: Callable[[ReplicaManager], Number]) -> Metric:
    def lines(scrape: Scrape) -> Iterator[str]:
        if scrape.services.replicas is not None:
            yield f"{name} {read(scrape.services.replicas)}\n"

    return Metric(name, kind, help_, (), lines)


def _family(
    kind: MetricKind,
    name: str,
    help_: str,
    labels: tuple[str, ...],
    read: Callable[[ReplicaManager], Iterator[tuple[LabelValues, Number]]],
) -> Metric:
    def lines(scrape: Scrape) -> Iterator[str]:
        if scrape.services.replicas is not None:
            for values, number in read(scrape.services.replicas):
                yield f"{name}{label_text(labels, values)} {number}\n"

    return Metric(name, kind, help_, labels, lines)


def _nodes(replicas: ReplicaManager) -> Iterator[tuple[LabelValues, Number]]:
    live = replicas.image.brokers.keys()
    yield ("up",), len(live)
    yield ("down",), len(replicas.image.nodes.keys() - live)


def _isr_changes(replicas: ReplicaManager) -> Iterator[tuple[LabelValues, Number]]:
    yield ("shrink",), replicas.probe.isr_shrinks
    yield ("expand",), replicas.probe.isr_expansions


def _follower_lags(replicas: ReplicaManager) -> Iterator[tuple[LabelValues, Number]]:
    for partition, leader in replicas.leading.terms():
        for broker_id, lag in leader.follower_lags().items():
            yield (*partition, broker_id), lag


def _renewals(replicas: ReplicaManager) -> Iterator[tuple[LabelValues, Number]]:
    probe = replicas.probe
    yield ("answered",), sum(probe.store_latencies["renew"].counts)
    yield ("failed",), probe.store_errors["renew"]


def _store_errors(replicas: ReplicaManager) -> Iterator[tuple[LabelValues, Number]]:
    for operation, count in list(replicas.probe.store_errors.items()):
        yield (operation,), count


def _store_latencies(scrape: Scrape) -> Iterator[tuple[LabelValues, Histogram]]:
    if scrape.services.replicas is not None:
        for operation, histogram in list(scrape.services.replicas.probe.store_latencies.items()):
            yield (operation,), histogram


CLUSTER: tuple[Metric, ...] = (
    _family(
        MetricKind.GAUGE,
        "logbrook_cluster_nodes",
        "Nodes that the cluster knows, by state: up or down.",
        ("state",),
        _nodes,
    ),
    _partitions("logbrook_cluster_partitions_led", "Partitions that this broker leads.", lambda counts: counts.led),
    _partitions(
        "logbrook_cluster_partitions_under_replicated",
        "Partitions led by this broker with a replica that is not in sync, except those that a move adds.",
        lambda counts: counts.under_replicated,
    ),
    _partitions(
        "logbrook_cluster_partitions_under_min_isr",
        "Partitions led by this broker with fewer in-sync replicas than min.insync.replicas: acks=all is refused.",
        lambda counts: counts.under_min_isr,
    ),
    _partitions(
        "logbrook_cluster_partitions_moving",
        "Partitions led by this broker that are being moved.",
        lambda counts: counts.moving,
    ),
    _partitions(
        "logbrook_cluster_partitions_offline",
        "Partitions of the whole cluster without a leader; every broker counts all of them.",
        lambda counts: counts.offline,
    ),
    _scalar(MetricKind.GAUGE, "logbrook_cluster_replicas", "Replicas on this broker.", lambda replicas: replicas.count),
    _partitions(
        "logbrook_cluster_follower_lag_max",
        "Offsets by which the slowest follower is behind this broker, over all partitions that it leads.",
        lambda counts: counts.lag_max,
    ),
    _family(
        MetricKind.GAUGE,
        "logbrook_partition_follower_lag",
        "Offsets by which a follower is behind the leader, by the leader; its records up to there are synced.",
        ("topic", "partition", "broker"),
        _follower_lags,
    ),
    _family(
        MetricKind.COUNTER,
        "logbrook_cluster_isr_changes_total",
        "Changes of in-sync replicas by this broker as the leader: shrink or expand.",
        ("change",),
        _isr_changes,
    ),
    _scalar(
        MetricKind.COUNTER,
        "logbrook_cluster_elections_total",
        "Partitions that this broker began to lead: elected after a failure, by a hand-over or by a move.",
        lambda replicas: replicas.probe.leader_terms,
    ),
    _scalar(
        MetricKind.COUNTER,
        "logbrook_cluster_unclean_elections_total",
        "Unclean elections by this broker, by request or by a topic's setting: the loss of records was accepted.",
        lambda replicas: replicas.probe.unclean_elections,
    ),
    _scalar(
        MetricKind.COUNTER,
        "logbrook_cluster_replicas_repaired_total",
        "Logs of this broker that were damaged, or on a failed data directory, and were replaced from their leader.",
        lambda replicas: replicas.repair.repaired,
    ),
    _scalar(
        MetricKind.COUNTER,
        "logbrook_cluster_fetched_bytes_total",
        "Bytes of record batches that this broker has fetched as a follower.",
        lambda replicas: replicas.probe.bytes_fetched,
    ),
    _scalar(
        MetricKind.GAUGE,
        "logbrook_cluster_lease_age_seconds",
        "Time since the last renewal of this broker's lease that was answered; its time to live is cluster.lease_ms.",
        lambda replicas: replicas.membership.lease_age_s,
    ),
    _scalar(
        MetricKind.GAUGE,
        "logbrook_cluster_lease_certain",
        "1 if no other broker can have taken over what this one leads; 0 if the metadata store has not answered.",
        lambda replicas: int(replicas.membership.is_certain),
    ),
    _family(
        MetricKind.COUNTER,
        "logbrook_cluster_lease_renewals_total",
        "Renewals of this broker's lease: answered or failed.",
        ("result",),
        _renewals,
    ),
    _scalar(
        MetricKind.COUNTER,
        "logbrook_cluster_registrations_total",
        "Registrations of this broker: 1 after the start, and 1 more each time that its lease was lost.",
        lambda replicas: replicas.probe.registrations,
    ),
    latencies(
        "logbrook_cluster_store_duration_seconds",
        "Round trips to the metadata store, by operation: commit, read, grant, renew or revoke.",
        ("operation",),
        _store_latencies,
    ),
    _family(
        MetricKind.COUNTER,
        "logbrook_cluster_store_errors_total",
        "Requests that the metadata store did not answer, by operation.",
        ("operation",),
        _store_errors,
    ),
    _scalar(
        MetricKind.GAUGE,
        "logbrook_cluster_metadata_revision",
        "Revision of the metadata store that this broker has applied.",
        lambda replicas: replicas.metadata_revision,
    ),
)
