"""Benchmark Logbrook, Kafka, Redis Streams and NATS JetStream, and write the results.

python -m bench.peers                              all measurements, about six hours
python -m bench.peers --quick                      two short rounds, about 5 minutes; saved only with --results
python -m bench.peers --systems logbrook,kafka --only latency,restart
python -m bench.peers --only cluster               the measurements whose names begin with it: clusters of three nodes
python -m bench.peers --report                     only write docs/BENCHMARKS.md and its charts from the results
"""

import argparse
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from bench.clusters.nodes import ClusterError
from bench.peers import cluster, coordinators, footprint, java, latency, report, restart, scale, throughput
from bench.peers.kafka import Kafka
from bench.peers.lab import QUICK, Amounts, Lab
from bench.peers.load import LoadError
from bench.peers.logbrook import Logbrook
from bench.peers.machine import client_versions, file_system, machine
from bench.peers.nats import Nats
from bench.peers.redis import Redis
from bench.peers.results import FILE, Results, Row, read, read_for, write
from bench.peers.system import Promise, System, UnavailableError
from bench.peers.workers import Workers

SYSTEMS: dict[str, Callable[[], System]] = {"logbrook": Logbrook, "kafka": Kafka, "redis": Redis, "nats": Nats}
MEASUREMENTS: dict[str, Callable[[Lab], Iterator[Row]]] = {
    "startup": footprint.measure_startup,
    "throughput": throughput.run,
    "java": java.run,
    "latency": latency.measure_acks,
    "end_to_end": latency.measure_end_to_end,
    "memory": footprint.measure_memory,
    "partitions": scale.measure_partitions,
    "connections": scale.measure_connections,
    "rebalance": coordinators.measure_rebalances,
    "transactions": coordinators.measure_transactions,
    "restart": restart.run,
    "cluster_load": cluster.measure_load,
    "cluster_operations": cluster.measure_operations,
    "cluster_failover": cluster.measure_failover,
}
_IN_MEMORY = {"tmpfs", "ramfs"}


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.report:
        print(f"{report.write(read(options.results or FILE))} is written")
        return 0
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    path = options.results or (None if options.quick else FILE)
    data = Path(tempfile.mkdtemp(prefix="logbrook-peers-", dir=options.data))
    try:
        return _measure(options, data, path)
    except KeyboardInterrupt:
        print("\ninterrupted; finished measurements are saved", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _measure(options: argparse.Namespace, data: Path, path: Path | None) -> int:
    if file_system(data) in _IN_MEMORY:
        print(
            f"{data} is on an in-memory file system, where syncs are free: choose a disk with --data",
            file=sys.stderr,
        )
        return 2
    results = Results(machine=machine(data)) if path is None else read_for(machine(data), path)
    systems = _installed(options.systems, results)
    if not systems:
        return 2
    with Workers() as workers:
        lab = Lab(systems, _amounts(options), [Promise(name) for name in options.promises], data, workers)
        failed = [name for name in options.only if not _run(name, lab, results, path)]
    if path is not None:
        print(
            f"\n{len(results.rows)} rows in {path}; `python -m bench.peers --report` writes the page", file=sys.stderr
        )
    if failed:
        print(f"failed measurements, see above: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _run(name: str, lab: Lab, results: Results, path: Path | None) -> bool:
    """Run one measurement and save its rows even if it fails. Return False after a LoadError."""
    try:
        for row in MEASUREMENTS[name](lab):
            print(_line(row), flush=True)
            results.merge([row])
    except (LoadError, ClusterError) as error:
        lab.say(f"{name} failed: {error}")
        return False
    finally:
        if path is not None:
            write(results, path)
    return True


def _installed(names: list[str], results: Results) -> list[System]:
    """Return the installed systems; print why the others are skipped."""
    systems = []
    for name in names:
        system = SYSTEMS[name]()
        try:
            results.versions[system.name] = system.version()
        except UnavailableError as error:
            print(f"skipping {system.name}: {error}", file=sys.stderr)
            results.skipped[system.name] = str(error)
            continue
        results.skipped.pop(system.name, None)
        by_promise = system.variants()
        results.variants = [variant for variant in results.variants if variant[0] != system.name]
        for promise in Promise:
            if promise in by_promise:
                variant = by_promise[promise]
                results.variants.append((system.name, promise.value, variant.settings, variant.meaning))
            else:
                results.variants.append((system.name, promise.value, "", "not supported by this version"))
                print(f"{system.name} cannot sync before it acknowledges", file=sys.stderr)
        systems.append(system)
    results.versions.update(client_versions())
    return systems


def _amounts(options: argparse.Namespace) -> Amounts:
    amounts = QUICK if options.quick else Amounts()
    if options.rounds is not None:
        amounts = replace(amounts, rounds=options.rounds)
    if options.seconds is not None:
        amounts = replace(amounts, throughput_s=options.seconds)
    if options.log_gb is not None:
        amounts = replace(amounts, log_gb=options.log_gb)
    return amounts


def _line(row: Row) -> str:
    spread = f"{row.low:,.4g} to {row.high:,.4g}"
    name = f"{row.what}: {row.metric}"
    system = f"{row.system} ({row.promise})"
    return f"{name:<62} {system:<24} {row.median:>12,.4g} {row.unit:<12} {spread} {row.note}".rstrip()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench.peers", description="Benchmark Logbrook and its peers.")
    parser.add_argument("--systems", type=_some_of(SYSTEMS), default=list(SYSTEMS), help=f"some of {','.join(SYSTEMS)}")
    parser.add_argument(
        "--only",
        type=_some_of(MEASUREMENTS),
        default=list(MEASUREMENTS),
        help=f"some of {','.join(MEASUREMENTS)}; cluster is all that begin with it",
    )
    promises = {promise.value: promise for promise in (Promise.LESS, Promise.DISK)}
    parser.add_argument(
        "--promises",
        type=_some_of(promises),
        default=list(promises),
        help=f"some of {','.join(promises)}: acknowledged before and after the sync",
    )
    parser.add_argument("--quick", action="store_true", help="two short rounds; results are printed, not saved")
    parser.add_argument("--rounds", type=int, help="number of rounds (5)")
    parser.add_argument("--seconds", type=float, help="duration of a throughput run (10)")
    parser.add_argument("--log-gb", type=float, help="size of the log in the restart measurement (10)")
    parser.add_argument("--data", type=Path, default=Path("/var/tmp"), help="data directory, on a disk (/var/tmp)")
    parser.add_argument("--results", type=Path, help=f"results file to merge rows into ({FILE.name})")
    parser.add_argument("--report", action="store_true", help="only write docs/BENCHMARKS.md from the results")
    return parser


def _some_of(choices: Mapping[str, object]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        # The beginning of several names, up to an underscore, stands for all of them.
        groups = {name: [choice for choice in choices if choice.startswith(f"{name}_")] for name in text.split(",")}
        names = [choice for name, group in groups.items() for choice in (group if name not in choices else [name])]
        names += [name for name, group in groups.items() if not group and name not in choices]
        if unknown := [name for name in names if name not in choices]:
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown)}; there are: {', '.join(choices)}")
        return names

    return parse


def _interrupted(_number: int, _frame: object) -> NoReturn:
    """Unwind on SIGINT and SIGTERM, so that servers are stopped; a background job would ignore SIGINT otherwise."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
