"""Measures Logbrook beside Kafka, Redis Streams and NATS JetStream, and writes what came out.

python -m bench.peers                              everything, about 45 minutes
python -m bench.peers --quick                      two rounds of little, about 5; kept only with --results
python -m bench.peers --systems logbrook,kafka --only latency,restart
python -m bench.peers --report                     docs/BENCHMARKS.md and its charts again, from the results
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

from bench.peers import (
    connections,
    end_to_end,
    java,
    latency,
    memory,
    partitions,
    rebalance,
    report,
    restart,
    startup,
    throughput,
    transactions,
)
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
    "startup": startup.run,
    "throughput": throughput.run,
    "java": java.run,
    "latency": latency.run,
    "end_to_end": end_to_end.run,
    "memory": memory.run,
    "partitions": partitions.run,
    "connections": connections.run,
    "rebalance": rebalance.run,
    "transactions": transactions.run,
    "restart": restart.run,
}
_IN_MEMORY = {"tmpfs", "ramfs"}


def main(arguments: list[str]) -> int:
    asked = _parser().parse_args(arguments)
    if asked.report:
        print(f"{report.write(read(asked.results or FILE))} is written")
        return 0
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    path = asked.results or (None if asked.quick else FILE)
    data = Path(tempfile.mkdtemp(prefix="logbrook-peers-", dir=asked.data))
    try:
        return _measure(asked, data, path)
    except KeyboardInterrupt:
        print("\nstopped; what was finished is kept", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _measure(asked: argparse.Namespace, data: Path, path: Path | None) -> int:
    if file_system(data) in _IN_MEMORY:
        print(f"{data} IS IN MEMORY, WHERE A SYNC COSTS NOTHING: choose a disk with --data", file=sys.stderr)
        return 2
    results = Results(machine=machine(data)) if path is None else read_for(machine(data), path)
    systems = _present(asked.systems, results)
    if not systems:
        return 2
    with Workers() as workers:
        lab = Lab(systems, _amounts(asked), data, workers)
        failed = [name for name in asked.only if not _done(name, lab, results, path)]
    if path is not None:
        print(
            f"\n{len(results.rows)} rows in {path}; `python -m bench.peers --report` writes the page", file=sys.stderr
        )
    if failed:
        print(f"FAILED, SEE ABOVE: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _done(name: str, lab: Lab, results: Results, path: Path | None) -> bool:
    """One measurement; what it found is kept however it ends. That a load failed does not end the others."""
    try:
        for row in MEASUREMENTS[name](lab):
            print(_line(row), flush=True)
            results.merge([row])
    except LoadError as error:
        lab.say(f"{name.upper()} FAILED: {error}")
        return False
    finally:
        if path is not None:
            write(results, path)
    return True


def _present(names: list[str], results: Results) -> list[System]:
    """Those that can be measured here; of the others it is said why not."""
    systems = []
    for name in names:
        system = SYSTEMS[name]()
        try:
            results.versions[system.name] = system.version()
        except UnavailableError as error:
            print(f"WITHOUT {system.name.upper()}: {error}", file=sys.stderr)
            results.skipped[system.name] = str(error)
            continue
        results.skipped.pop(system.name, None)
        variants = system.variants()
        results.variants = [one for one in results.variants if one[0] != system.name]
        for promise in Promise:
            if promise in variants:
                variant = variants[promise]
                results.variants.append((system.name, promise.value, variant.settings, variant.meaning))
            else:
                results.variants.append((system.name, promise.value, "", "this version cannot promise it"))
                print(f"{system.name} cannot sync before it acknowledges", file=sys.stderr)
        systems.append(system)
    results.versions.update(client_versions())
    return systems


def _amounts(asked: argparse.Namespace) -> Amounts:
    amounts = QUICK if asked.quick else Amounts()
    if asked.rounds is not None:
        amounts = replace(amounts, rounds=asked.rounds)
    if asked.seconds is not None:
        amounts = replace(amounts, throughput_s=asked.seconds)
    if asked.log_gb is not None:
        amounts = replace(amounts, log_gb=asked.log_gb)
    return amounts


def _line(row: Row) -> str:
    spread = f"{row.low:,.4g} to {row.high:,.4g}"
    name = f"{row.what}: {row.metric}"
    of = f"{row.system} ({row.promise})"
    return f"{name:<62} {of:<24} {row.median:>12,.4g} {row.unit:<12} {spread} {row.note}".rstrip()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench.peers", description="Logbrook beside its peers.")
    parser.add_argument("--systems", type=_some_of(SYSTEMS), default=list(SYSTEMS), help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument(
        "--only", type=_some_of(MEASUREMENTS), default=list(MEASUREMENTS), help=f"of {', '.join(MEASUREMENTS)}"
    )
    parser.add_argument("--quick", action="store_true", help="two rounds of little; the results are only printed")
    parser.add_argument("--rounds", type=int, help="how often each thing is measured (5)")
    parser.add_argument("--seconds", type=float, help="how long a run of a throughput ought to take (0.8)")
    parser.add_argument("--log-gb", type=float, help="how much log a killed server has (10)")
    parser.add_argument("--data", type=Path, default=Path("/var/tmp"), help="a directory on a disk (/var/tmp)")
    parser.add_argument("--results", type=Path, help=f"the file that the rows are merged into ({FILE.name})")
    parser.add_argument("--report", action="store_true", help="write docs/BENCHMARKS.md from the results, and stop")
    return parser


def _some_of(known: Mapping[str, object]) -> Callable[[str], list[str]]:
    def some(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown)}; there are: {', '.join(known)}")
        return names

    return some


def _interrupted(_number: int, _frame: object) -> NoReturn:
    """Both unwind, so that no server is left; a shell's background run would ignore Ctrl-C otherwise."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
