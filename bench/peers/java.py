"""A second opinion on small messages: Kafka's own performance tools, with Kafka's own Java clients.

A run counts the start of the clients in its time, which is the same for both.
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
        lab.say(f"WITHOUT KAFKA'S OWN TOOLS: {error}")
        return
    samples = Samples("java")
    with lab.serving(_of_kafkas_clients) as everyone:
        for _ in lab.rounds("Kafka's own performance tools", samples, warm_ups=1):
            for running in everyone:
                job = running.job(lab.topic())
                with lab.created(running, job):
                    _measure(samples, running, jars, job.topic, lab.amounts.java_messages)
    yield from samples.rows()


def _of_kafkas_clients(system: System) -> Variant | None:
    return promised(Promise.LESS)(system) if system.load == "kafka" else None


def _measure(samples: Samples, running: Running, jars: str, topic: str, count: int) -> None:
    address = running.server.address
    gb = count * _SIZE / 1e9
    for verb, tool, options in (
        ("produce", "ProducerPerformance", _producing(address, topic, count)),
        ("consume", "ConsumerPerformance", _consuming(address, topic, count)),
    ):
        before = running.server.cpu_s()
        said = _run(jars, f"org.apache.kafka.tools.{tool}", options)
        cpu_s = running.server.cpu_s() - before
        mb_per_s = _produced(said) if verb == "produce" else _consumed(said)
        samples.add(running.of, _WHAT, f"{verb}, throughput", "MB/s", mb_per_s, higher_is_better=True)
        samples.add(running.of, _WHAT, f"{verb}, CPU of the server", "s/GB", cpu_s / gb)


def _producing(address: str, topic: str, count: int) -> list[str]:
    much = ["--topic", topic, "--num-records", str(count), "--record-size", str(_SIZE), "--throughput", "-1"]
    return [*much, "--producer-props", f"bootstrap.servers={address}", "acks=all", "linger.ms=5", "batch.size=1000000"]


def _consuming(address: str, topic: str, count: int) -> list[str]:
    return ["--bootstrap-server", address, "--topic", topic, "--messages", str(count)]


def _produced(said: str) -> float:
    """From the last line, which is of all: "N records sent, R records/sec (M MB/sec), ..."."""
    rates = re.findall(r"([\d.]+) records/sec", said)
    return float(rates[-1]) * _SIZE / 1e6


def _consumed(said: str) -> float:
    """From the last line of its table; the rate of fetching leaves out the joining of the group."""
    header, *_, last = [line for line in said.splitlines() if line.count(",") > 5]
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
