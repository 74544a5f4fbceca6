"""The measurements, the servers that each needs, the order in which they run, and how long they take.

Measurements with warm servers share them: one server of each system is started and warmed up for each promise, and all
measurements under that promise follow. What is measured with each system's defaults comes after that, and then what
starts servers of its own.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from bench.clusters.nodes import ClusterError
from bench.librdkafka import LibrdkafkaError
from bench.peers import (
    beside,
    cells,
    cluster,
    compaction,
    coordinators,
    disk_writes,
    footprint,
    groups,
    java,
    latency,
    restart,
    scale,
    small,
    throughput,
)
from bench.peers.lab import Amounts, Lab, Running, by_default, promised
from bench.peers.load import LoadError
from bench.peers.results import Row
from bench.peers.system import Promise, System, Variant
from bench.peers.warm_up import warm_up


class Servers(Enum):
    """The warm servers that a measurement gets: of each promise, of one, or with each system's defaults."""

    EACH_PROMISE = "each promise"
    LESS = "acknowledged before the sync"
    DEFAULTS = "defaults"


class Span(NamedTuple):
    """An estimate in seconds: if every line is steady at once, and if none ever is."""

    least_s: float
    most_s: float

    def __add__(self, other: object) -> "Span":
        assert isinstance(other, Span)
        return Span(self.least_s + other.least_s, self.most_s + other.most_s)

    def __str__(self) -> str:
        return f"{_minutes(self.least_s)} to {_minutes(self.most_s)}"


@dataclass(frozen=True)
class WarmMeasurement:
    """`lines` are its steady lines under one promise, `fixed_s` everything else, for each system."""

    run: Callable[[Lab, list[Running]], Iterator[Row]]
    servers: Servers
    lines: float = 0
    run_s: float | None = None
    # Time beside each run: to create and delete topics, to touch page cache, to connect.
    overhead_s: float = 1.5
    fixed_s: float = 0.0

    def span(self, amounts: Amounts, systems: int) -> Span:
        rule = amounts.rule if self.run_s is None else amounts.rule.with_run(self.run_s)
        run_s = rule.run_s + self.overhead_s
        share = _QUICK_SHARE if amounts.is_quick else 1.0
        fixed_s = systems * self.fixed_s * share
        least_s = systems * self.lines * rule.runs_min * run_s + fixed_s
        return Span(least_s, systems * self.lines * rule.runs_max * run_s + fixed_s)


@dataclass(frozen=True)
class OwnMeasurement:
    """It starts its own servers. `seconds` is an estimate for the amounts and the number of systems."""

    run: Callable[[Lab], Iterator[Row]]
    seconds: Callable[[Amounts, int], Span]


_QUICK_SHARE = 0.2
_WARM_UP_OVERHEAD = 3.0
_START_S = 10.0


def _fixed(full_s: float, quick_s: float) -> Callable[[Amounts, int], Span]:
    def seconds(amounts: Amounts, systems: int) -> Span:
        each_s = quick_s if amounts.is_quick else full_s
        return Span(systems * each_s, systems * each_s)

    return seconds


def _endurance(amounts: Amounts, systems: int) -> Span:
    seconds = amounts.endurance_s + systems * _START_S
    return Span(seconds, seconds)


def _restart(amounts: Amounts, systems: int) -> Span:
    seconds = systems * (amounts.log_gb * 12 + amounts.rounds * 20)
    return Span(seconds, seconds)


def _cluster_load(amounts: Amounts, _: int) -> Span:
    lines = WarmMeasurement(lambda _lab, _servers: iter(()), Servers.EACH_PROMISE, lines=4, overhead_s=2.5)
    each = lines.span(amounts, 2) + warm_up_span(amounts, 2)
    return each + each


_CELLS = len(cells.CELLS)
WARM: dict[str, WarmMeasurement] = {
    # Under one of two promises each case has a line of consuming as well, and one of the reference.
    "throughput": WarmMeasurement(throughput.run, Servers.EACH_PROMISE, lines=1.75 * _CELLS, overhead_s=1.2),
    "small_requests": WarmMeasurement(small.run, Servers.EACH_PROMISE, lines=len(small.CONNECTIONS), overhead_s=0.5),
    "latency": WarmMeasurement(
        latency.measure_acks, Servers.EACH_PROMISE, lines=len(latency.ACK_RATES), overhead_s=0.5
    ),
    "end_to_end": WarmMeasurement(latency.measure_end_to_end, Servers.EACH_PROMISE, lines=1, overhead_s=0.5),
    "transactions": WarmMeasurement(coordinators.measure_transactions, Servers.EACH_PROMISE, lines=2, overhead_s=3.0),
    "disk_writes": WarmMeasurement(disk_writes.run, Servers.EACH_PROMISE, lines=len(disk_writes.CELLS), overhead_s=4.0),
    "many_partitions": WarmMeasurement(
        scale.measure_many_partitions, Servers.EACH_PROMISE, lines=1, overhead_s=0.5, fixed_s=15
    ),
    "fan_out": WarmMeasurement(groups.measure_fan_out, Servers.LESS, lines=1, fixed_s=5),
    "java": WarmMeasurement(java.run, Servers.LESS, lines=1, run_s=java.RUN_S, overhead_s=12.0),
    "beside": WarmMeasurement(beside.run, Servers.LESS, lines=2, run_s=beside.RUN_S, fixed_s=10),
    "idle_groups": WarmMeasurement(
        groups.measure_idle_groups, Servers.LESS, lines=2, run_s=groups.IDLE_RUN_S, overhead_s=0.1, fixed_s=15
    ),
    "compaction": WarmMeasurement(compaction.run, Servers.LESS, fixed_s=200),
    "connections": WarmMeasurement(scale.measure_connections, Servers.DEFAULTS, lines=1, overhead_s=0.5, fixed_s=15),
    "partitions": WarmMeasurement(scale.measure_partitions, Servers.DEFAULTS, fixed_s=90),
    "rebalance": WarmMeasurement(coordinators.measure_rebalances, Servers.DEFAULTS, fixed_s=75),
}
OWN: dict[str, OwnMeasurement] = {
    "startup": OwnMeasurement(footprint.measure_startup, _fixed(30, 12)),
    "memory": OwnMeasurement(footprint.measure_memory, _fixed(60, 15)),
    "restart": OwnMeasurement(restart.run, _restart),
    "endurance": OwnMeasurement(footprint.measure_endurance, _endurance),
    "cluster_load": OwnMeasurement(cluster.measure_load, _cluster_load),
    "cluster_operations": OwnMeasurement(cluster.measure_operations, _fixed(420, 40)),
    "cluster_failover": OwnMeasurement(cluster.measure_failover, _fixed(900, 200)),
}
MEASUREMENTS = (*WARM, *OWN)


def run(lab: Lab, names: Collection[str]) -> Iterator[Row]:
    """Run the measurements of the plan; one that fails does not end the others. Raises OutOfTimeError."""
    for pick, chosen in _stages(lab.promises, names):
        yield from _with_warm_servers(lab, pick, chosen)
    for name, own in OWN.items():
        if name in names:
            try:
                yield from own.run(lab)
            except (LoadError, LibrdkafkaError, ClusterError) as error:
                lab.fail(name, error)


def estimate(amounts: Amounts, systems: int, promises: Sequence[Promise], names: Collection[str]) -> Span:
    total = Span(0.0, 0.0)
    for _, chosen in _stages(promises, names):
        total += warm_up_span(amounts, systems) if chosen else Span(0.0, 0.0)
        for name in chosen:
            total += WARM[name].span(amounts, systems)
    for name, own in OWN.items():
        total += own.seconds(amounts, systems) if name in names else Span(0.0, 0.0)
    return total


def warm_up_span(amounts: Amounts, systems: int) -> Span:
    """Return the time to start and warm up the servers of one promise."""
    least_s, most_s = amounts.rule.seconds_min, max(amounts.warm_up_s, amounts.rule.seconds_min)
    return Span(systems * (_START_S + _WARM_UP_OVERHEAD * least_s), systems * (_START_S + _WARM_UP_OVERHEAD * most_s))


def _stages(
    promises: Sequence[Promise], names: Collection[str]
) -> Iterator[tuple[Callable[[System], Variant | None], list[str]]]:
    """Yield which servers run, and the measurements that share them."""
    for promise in promises:
        servers = (Servers.EACH_PROMISE, Servers.LESS) if promise is Promise.LESS else (Servers.EACH_PROMISE,)
        yield promised(promise), [name for name, item in WARM.items() if name in names and item.servers in servers]
    yield by_default, [name for name, item in WARM.items() if name in names and item.servers is Servers.DEFAULTS]


def _with_warm_servers(lab: Lab, pick: Callable[[System], Variant | None], names: list[str]) -> Iterator[Row]:
    if not names:
        return
    lab.check_time()
    with lab.serving(pick) as servers:
        if servers:
            yield from warm_up(lab, servers)
            for name in names:
                try:
                    yield from WARM[name].run(lab, servers)
                except (LoadError, LibrdkafkaError) as error:
                    # The servers are still there for the other measurements.
                    lab.fail(name, error)


def _minutes(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.1f} h"
