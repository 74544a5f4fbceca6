"""Small messages measured with Kafka's own performance tools and Java clients.

A run includes the start of the client, which is the same for both systems, and is 10 s long, so that the client's
own warm-up is a small part of it.
"""

import re
import subprocess
from collections.abc import Iterator

from bench.peers.kafka import classpath
from bench.peers.lab import Lab, Running
from bench.peers.load import LoadError
from bench.peers.results import Row
from bench.peers.steady import Measured, Run
from bench.peers.system import UnavailableError

RUN_S = 10.0
_SIZE = 100
_MESSAGES = 200_000
_MESSAGES_MAX = 20_000_000
_TOOL_S_MAX = 300.0
_WHAT = "100 B, 1 partition, Java client"


def run(lab: Lab, servers: list[Running]) -> Iterator[Row]:
    try:
        jars = classpath()
    except UnavailableError as error:
        lab.say(f"skipping Kafka's performance tools: {error}")
        return
    lines = {running.of: _JavaLine(lab, running, jars) for running in servers if running.system.load == "kafka"}
    yield from lab.steady("java", _WHAT, {of: line.run_once for of, line in lines.items()}, RUN_S)


class _JavaLine:
    def __init__(self, lab: Lab, running: Running, jars: str) -> None:
        self._lab = lab
        self._running = running
        self._jars = jars
        self._count = 0

    def run_once(self) -> Run:
        if not self._count:
            self._count = _MESSAGES
            self._run()
        return self._run()

    def _run(self) -> Run:
        """Produce and consume; the next run has as many messages as are produced in its time."""
        address, count = self._running.server.address, self._count
        job = self._running.job(self._lab.topic())
        gb = count * _SIZE / 1e9
        values = []
        with self._lab.created(self._running, job):
            for verb, tool, options in (
                ("produce", "ProducerPerformance", _producing(address, job.topic, count)),
                ("consume", "ConsumerPerformance", _consuming(address, job.topic, count)),
            ):
                before_s = self._running.server.cpu_s()
                output = _run(self._jars, f"org.apache.kafka.tools.{tool}", options)
                cpu_s = self._running.server.cpu_s() - before_s
                mb_per_s = _produced(output) if verb == "produce" else _consumed(output)
                throughput = f"{verb}, throughput"
                values += [
                    Measured(throughput, "MB/s", mb_per_s, higher_is_better=True, decides=verb == "produce"),
                    Measured(f"{verb}, CPU of the server", "s/GB", cpu_s / gb, decides=True),
                ]
                if verb == "produce":
                    run_s = self._lab.amounts.rule.with_run(RUN_S).run_s
                    self._count = max(_MESSAGES, min(_MESSAGES_MAX, round(mb_per_s * 1e6 / _SIZE * run_s)))
        return values


def _producing(address: str, topic: str, count: int) -> list[str]:
    amount = ["--topic", topic, "--num-records", str(count), "--record-size", str(_SIZE), "--throughput", "-1"]
    return [
        *amount,
        "--producer-props",
        f"bootstrap.servers={address}",
        "acks=all",
        "linger.ms=5",
        "batch.size=1000000",
    ]


def _consuming(address: str, topic: str, count: int) -> list[str]:
    return ["--bootstrap-server", address, "--topic", topic, "--messages", str(count)]


def _produced(output: str) -> float:
    """Parse the last line, the total: "N records sent, R records/sec (M MB/sec), ..."."""
    rates = re.findall(r"([\d.]+) records/sec", output)
    return float(rates[-1]) * _SIZE / 1e6


def _consumed(output: str) -> float:
    """Parse the last line of the table. The fetch rate excludes joining the group."""
    header, *_, last = [line for line in output.splitlines() if line.count(",") > 5]
    columns = dict(zip(header.split(", "), last.split(", "), strict=True))
    return float(columns["fetch.nMsg.sec"]) * _SIZE / 1e6


def _run(jars: str, main: str, options: list[str]) -> str:
    done = subprocess.run(
        ["java", "-Xmx512M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", jars, main, *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TOOL_S_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise LoadError(f"{main} failed: {done.stderr[-300:]}")
    return done.stdout
