"""Benchmark Logbrook, Kafka, Redis Streams and NATS JetStream in steady state, and write the results.

python -m bench.peers --systems logbrook,kafka     all measurements of the two; the estimate is printed first
python -m bench.peers --plan                       only print the measurements and the estimate of each
python -m bench.peers --minutes 55 --resume        begin no line after 55 minutes; leave out what this version has
python -m bench.peers --only throughput --promises less
python -m bench.peers --only cluster               the measurements whose names begin with it: clusters of three nodes
python -m bench.peers --quick                      short runs, nothing is steady; saved only with --results
python -m bench.peers --report                     only write docs/BENCHMARKS.md and its charts from the results
python -m bench.peers --table                      only print every row of the results
"""

import argparse
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from bench.peers import plan, report
from bench.peers.kafka import Kafka
from bench.peers.lab import QUICK, Amounts, Lab, OutOfTimeError
from bench.peers.logbrook import Logbrook
from bench.peers.machine import client_versions, file_system, machine, stamp
from bench.peers.nats import Nats
from bench.peers.redis import Redis
from bench.peers.results import FILE, Results, Row, State, read, read_for, stamped, write
from bench.peers.system import Promise, System, UnavailableError
from bench.peers.workers import Workers
from logbrook.testing.reaper import Reaper

SYSTEMS: dict[str, Callable[[], System]] = {"logbrook": Logbrook, "kafka": Kafka, "redis": Redis, "nats": Nats}
_IN_MEMORY = {"tmpfs", "ramfs"}
_OUT_OF_TIME = 3


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.report:
        print(f"{report.write(read(options.results or FILE))} is written")
        return 0
    if options.table:
        print("\n".join(_line(row) for row in read(options.results or FILE).rows))
        return 0
    if options.plan:
        _print_plan(options)
        return 0
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    is_trial = options.quick or options.warm_up is not None
    path = options.results or (None if is_trial else FILE)
    data = Path(tempfile.mkdtemp(prefix="logbrook-peers-", dir=options.data))
    # It kills all servers and removes their data, even if this process is killed.
    with Reaper() as reaper:
        reaper.watch_directory(str(data))
        try:
            return _measure(options, data, path)
        except KeyboardInterrupt:
            print("\ninterrupted; finished measurements are saved", file=sys.stderr)
            return 130


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
    mark = stamp()
    measured = results.lines_of(mark.version) if options.resume else set()
    if measured and mark.is_changed:
        print("src has changes that are not committed: --resume cannot tell what was measured", file=sys.stderr)
        return 2
    _print_plan(options)
    with Workers() as workers:
        promises = [Promise(name) for name in options.promises]
        lab = Lab(
            systems,
            _amounts(options),
            promises,
            data,
            workers,
            measured=measured,
            cases=options.case,
            minutes=options.minutes,
        )
        code = _run(options.only, lab, results, path)
    if path is not None:
        print(
            f"\n{len(results.rows)} rows in {path}; `python -m bench.peers --report` writes the page", file=sys.stderr
        )
    return code


def _run(names: list[str], lab: Lab, results: Results, path: Path | None) -> int:
    """Run the measurements and save each row at once. Return an exit code."""
    mark = stamp()
    try:
        for row in plan.run(lab, names):
            print(_line(row), flush=True)
            results.merge([stamped(row, mark)])
            if path is not None:
                write(results, path)
    except OutOfTimeError as error:
        lab.say(f"{error}; everything measured is saved, continue with --resume")
        return _OUT_OF_TIME
    if lab.failed:
        lab.say(f"failed measurements, see above: {', '.join(lab.failed)}")
    return 1 if lab.failed else 0


def _print_plan(options: argparse.Namespace) -> None:
    amounts, promises = _amounts(options), [Promise(name) for name in options.promises]
    count = len(options.systems)
    for name in options.only:
        span = plan.estimate(amounts, count, promises, [name])
        print(f"{name:<20} {span} with the start and warm-up of its servers", file=sys.stderr)
    total = plan.estimate(amounts, count, promises, options.only)
    print(
        f"estimate for {count} systems: {total} (all lines steady at once; none ever steady). Servers are shared.",
        file=sys.stderr,
    )


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
        amounts = replace(amounts, rounds=options.rounds, rule=replace(amounts.rule, runs=options.rounds))
    if options.seconds is not None:
        amounts = replace(amounts, rule=replace(amounts.rule, run_s=options.seconds))
    if options.warm_up is not None:
        amounts = replace(amounts, warm_up_s=options.warm_up)
    if options.endurance_minutes is not None:
        amounts = replace(amounts, endurance_s=60 * options.endurance_minutes)
    if options.log_gb is not None:
        amounts = replace(amounts, log_gb=options.log_gb)
    return amounts


def _line(row: Row) -> str:
    spread = f"{row.low:,.4g} to {row.high:,.4g}"
    name = f"{row.what}: {row.metric}"
    system = f"{row.system} ({row.promise})"
    state = "" if row.state in (State.STEADY, State.ROUNDS) else f"[{row.state}]"
    if row.state is State.NOT_STEADY:
        state = f"[{row.state}: {' '.join(f'{value:.3g}' for value in row.runs)}]"
    value = f"{row.median:>12,.4g} {row.unit:<12} {spread}"
    return f"{name:<62} {system:<24} {value} {row.note} {state}".rstrip()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench.peers", description="Benchmark Logbrook and its peers.")
    parser.add_argument("--systems", type=_some_of(SYSTEMS), default=list(SYSTEMS), help=f"some of {','.join(SYSTEMS)}")
    parser.add_argument(
        "--only",
        type=_some_of(plan.MEASUREMENTS),
        default=list(plan.MEASUREMENTS),
        help=f"some of {','.join(plan.MEASUREMENTS)}; cluster is all that begin with it",
    )
    promises = {promise.value: promise for promise in (Promise.LESS, Promise.DISK)}
    parser.add_argument(
        "--promises",
        type=_some_of(promises),
        default=list(promises),
        help=f"some of {','.join(promises)}: acknowledged before and after the sync",
    )
    parser.add_argument("--quick", action="store_true", help="short runs, none steady; printed, not saved")
    parser.add_argument("--rounds", type=int, help="rounds, and runs that must agree for a steady line (5)")
    parser.add_argument("--seconds", type=float, help="duration of a run (2)")
    parser.add_argument("--warm-up", type=float, help="longest load before the first line, in s (120); not saved")
    parser.add_argument(
        "--case", action="append", default=[], help="measure only this case, such as '1 KB, 1 partition'"
    )
    parser.add_argument("--minutes", type=float, help="begin no line after this time")
    parser.add_argument("--resume", action="store_true", help="leave out lines that this version of the tree has")
    parser.add_argument("--endurance-minutes", type=float, help="time for which memory is observed (60)")
    parser.add_argument("--log-gb", type=float, help="size of the log in the restart measurement (10)")
    parser.add_argument("--data", type=Path, default=Path("/var/tmp"), help="data directory, on a disk (/var/tmp)")
    parser.add_argument("--results", type=Path, help=f"results file to merge rows into ({FILE.name})")
    parser.add_argument("--plan", action="store_true", help="only print the estimate of each measurement")
    parser.add_argument("--table", action="store_true", help="only print every row of the results")
    parser.add_argument("--report", action="store_true", help="only write docs/BENCHMARKS.md from the results")
    return parser


def _some_of(choices: Iterable[str]) -> Callable[[str], list[str]]:
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
