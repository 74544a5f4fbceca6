"""A producer at a steady rate, alone and beside a consumer that reads old records from the disk."""

from collections.abc import Iterator
from functools import partial

from bench import beside_reader
from bench.beside_reader import CASES, NEW, OLD, BesideBroker, BesideCase
from bench.peers.lab import Lab, Running
from bench.peers.results import Row
from bench.peers.steady import Measured, Run

RUN_S = 4.0
_CASES = [case for case in CASES if case.reader in (None, "cold") and not case.is_limited]


def run(lab: Lab, servers: list[Running]) -> Iterator[Row]:
    readable = [running for running in servers if running.system.load == "kafka"]
    whats = {f"1 KB, 1,000 messages/s, {case.name}": case for case in _CASES}
    if all(lab.is_measured("beside", what, [running.of for running in readable]) for what in whats):
        return
    lab.check_time()
    brokers = {}
    for running in readable:
        directory = running.directory / "data" / f"{OLD}-0"
        brokers[running.of] = BesideBroker(running.system.name, running.server.address, directory)
        lab.say(f"beside: filling {running.system.name} with 1 GB")
        beside_reader.fill(brokers[running.of])
    for what, case in whats.items():
        runs = {running.of: partial(_run_once, lab, running, brokers[running.of], case) for running in readable}
        yield from lab.steady("beside", what, runs, RUN_S)
    for running in readable:
        for topic in (OLD, NEW):
            running.call("delete", running.job(topic))


def _run_once(lab: Lab, running: Running, broker: BesideBroker, case: BesideCase) -> Run:
    run_s = lab.amounts.rule.with_run(RUN_S).run_s
    before_s = running.server.cpu_s()
    sample = beside_reader.measure(broker, case, duration_s=run_s)
    cpu_s = running.server.cpu_s() - before_s
    values = [
        Measured("ack, p50", "ms", sample.p50_ms, decides=True),
        Measured("ack, p99", "ms", sample.p99_ms),
        Measured("CPU of the server", "s", cpu_s),
    ]
    if case.reader:
        values.append(Measured("throughput of the reader", "MB/s", sample.mb_per_s, higher_is_better=True))
    return values
