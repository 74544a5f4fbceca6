"""Small messages measured with Kafka's own performance tools and Java clients.

A run includes the start of the client, which is the same for both systems.
"""

import re
import subprocess
from collections.abc import Iterator

from bench.peers.kafka import classpath
from bench.peers.lab import Lab, Running, promised
from bench.peers.load import LoadError
from bench.peers.results import Row, Samples
from bench.peers.system import Promise, System, UnavailableError, Variant

_SIZE = 100
_TOOL_S_MAX = 300.0
_WHAT = "100 B, 1 partition, Java client"


def run(lab: Lab) -> Iterator[Row]:
    try:
        jars = classpath()
    except UnavailableError as error:
        lab.say(f"skipping Kafka's performance tools: {error}")
        return
    samples = Samples("java")
    with lab.serving(_with_kafka_protocol) as servers:
        for _ in lab.rounds("Kafka's own performance tools", samples, warm_ups=1):
            for running in servers:
                job = running.job(lab.topic())
                with lab.created(running, job):
                    _measure(samples, running, jars, job.topic, lab.amounts.java_messages)
    yield from samples.rows()


def _with_kafka_protocol(system: System) -> Variant | None:
    return promised(Promise.LESS)(system) if system.load == "kafka" else None


def _measure(samples: Samples, running: Running, jars: str, topic: str, count: int) -> None:
    address = running.server.address
    gb = count * _SIZE / 1e9
    for verb, tool, options in (
        ("produce", "ProducerPerformance", _producing(address, topic, count)),
        ("consume", "ConsumerPerformance", _consuming(address, topic, count)),
    ):
        before = running.server.cpu_s()
        output = _run(jars, f"org.apache.kafka.tools.{tool}", options)
        cpu_s = running.server.cpu_s() - before
        mb_per_s = _produced(output) if verb == "produce" else _consumed(output)
        samples.add(running.of, _WHAT, f"{verb}, throughput", "MB/s", mb_per_s, higher_is_better=True)
        samples.add(running.of, _WHAT, f"{verb}, CPU of the server", "s/GB", cpu_s / gb)


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
