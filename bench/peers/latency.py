"""Latency at a steady rate: from send to acknowledgement, and from send to receive in two processes.

An acknowledgement is the Produce response with acks=all for Kafka's protocol, the reply to XADD for Redis, and the
PubAck for NATS. A line is steady when its p50 is: the tail is too rare for that in a run.
"""

from collections.abc import Iterator
from functools import partial

from bench.peers.lab import Lab, Running
from bench.peers.load import QUANTILES
from bench.peers.results import Row
from bench.peers.steady import Measured, Run

ACK_RATES = (1_000, 10_000)
_END_TO_END_RATE = 1_000
_RATE_REACHED = 0.95


def measure_acks(lab: Lab, servers: list[Running]) -> Iterator[Row]:
    for rate in ACK_RATES:
        runs = {running.of: partial(ack_run, lab, running, rate) for running in servers}
        yield from lab.steady("latency", f"1 KB, {rate:,} messages/s", runs)


def measure_end_to_end(lab: Lab, servers: list[Running]) -> Iterator[Row]:
    runs = {running.of: partial(_end_to_end_run, lab, running) for running in servers}
    yield from lab.steady("end_to_end", f"1 KB, {_END_TO_END_RATE:,} messages/s", runs)


def ack_run(lab: Lab, running: Running, rate: int, partitions: int = 1) -> Run:
    count = int(rate * lab.amounts.rule.run_s)
    job = running.job(lab.topic(), rate=rate, count=count, partitions=partitions)
    with lab.created(running, job):
        latencies_ms = running.call("acknowledged", job)
    note = "" if latencies_ms["rate"] > _RATE_REACHED * rate else "rate"
    return _quantiles("ack", latencies_ms, note)


def _end_to_end_run(lab: Lab, running: Running) -> Run:
    count = int(_END_TO_END_RATE * lab.amounts.rule.run_s)
    job = running.job(lab.topic(), rate=_END_TO_END_RATE, count=count)
    with lab.created(running, job):
        receiving = lab.workers.begin(running.system.load, "receive_stamped", job)
        lab.workers.call(running.system.load, "send_stamped", job)
        latencies_ms = receiving.result()
    return _quantiles("send to receive", latencies_ms, "")


def _quantiles(name: str, latencies_ms: dict[str, float], note: str) -> Run:
    return [
        Measured(f"{name}, {quantile}", "ms", latencies_ms[quantile], decides=quantile == "p50", note=note)
        for quantile in QUANTILES
    ]
