"""`logbrook bench`: against a real broker, by itself, on a terminal, and interrupted."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logbrook.cli.bench_latency import Latencies, draw_histogram
from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.testing import Broker
from tests.unit.cli.pseudo_terminal import PseudoTerminal

LOGBROOK = Path(sys.executable).parent / "logbrook"


def run(broker: Broker, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(LOGBROOK), "bench", "-b", broker.bootstrap_servers, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def topics(broker: Broker) -> list[str]:
    with Client(broker.bootstrap_servers) as client:
        return Admin(client).topics.names()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--count", "3000", "-p", "3", "--producers", "2", "--consumers", "2"],
        ["--count", "1001", "--batch", "100", "--size", "10", "-z", "zstd", "--acks", "1", "--in-flight", "1"],
        ["--count", "500", "--acks", "0", "-z", "gzip"],
        ["--count", "500", "--rate", "5000"],
    ],
)
def test_what_is_produced_is_consumed_and_the_topic_goes_again(logbrook_broker: Broker, arguments: list[str]) -> None:
    before = topics(logbrook_broker)
    done = run(logbrook_broker, *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    count = int(arguments[1])
    for side in (found["produce"], found["consume"]):
        assert side["records"] == count
        latency = side["latency_ms"]
        assert 0 <= latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p99.9"] <= latency["max"]
        assert sum(row["records"] for row in latency["histogram"]) == count
    assert found["produce"]["bytes"] == found["consume"]["bytes"]
    assert (found["failure"], found["interrupted"]) == (None, False)
    assert topics(logbrook_broker) == before


def test_the_table_has_both_sides_and_histograms(logbrook_broker: Broker) -> None:
    done = run(logbrook_broker, "--count", "1000")
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["THROUGHPUT", "RECORDS", "SECONDS"]
    assert lines[4].split() == ["LATENCY", "IN", "MS", "P50", "P90", "P99", "P99.9", "MAX"]
    assert [line.split()[:2] for line in lines[1:3]] == [["produced", "1,000"], ["consumed", "1,000"]]
    assert "Latency from send to answer" in lines
    assert "█" in done.stdout


def test_a_topic_is_kept_if_it_is_to_be_and_can_be_read_alone(logbrook_broker: Broker) -> None:
    done = run(logbrook_broker, "--topic", "bench-kept", "--keep", "--count", "200", "--consumers", "0", "--json")
    assert "logbrook topic delete bench-kept" in done.stderr
    assert json.loads(done.stdout)["consume"] is None
    found = json.loads(run(logbrook_broker, "--topic", "bench-kept", "--producers", "0", "--json").stdout)
    assert (found["produce"], found["consume"]["records"], found["consume"]["latency_ms"]) == (None, 200, None)
    # It was there before, so that it is not for the benchmark to remove.
    run(logbrook_broker, "--topic", "bench-kept", "--count", "10")
    assert "bench-kept" in topics(logbrook_broker)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--producers", "0"], 2, "error: --topic: say what to read"),
        (["--producers", "0", "--consumers", "0"], 2, "there is nothing to do"),
        (["--count", "1", "--producers", "2"], 2, "error: --count: it is less than the number of producers"),
        (["--producers", "0", "--topic", "not-there"], 1, "it is not there; `logbrook topic list` shows what is"),
        (["--count", "1", "--size", "3000000"], 1, "a record is larger than the topic takes"),
        (["--topic", "no/name", "--count", "1"], 1, "error: creating topic no/name"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence(
    logbrook_broker: Broker, arguments: list[str], code: int, told: str
) -> None:
    done = run(logbrook_broker, *arguments)
    assert done.returncode == code
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_broker_that_is_not_there_is_an_error() -> None:
    done = subprocess.run([LOGBROOK, "bench", "-b", "127.0.0.1:9"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: cannot connect to 127.0.0.1:9")


def test_a_broker_that_goes_away_ends_it_with_the_numbers_so_far() -> None:
    with Broker() as broker:
        terminal = PseudoTerminal("bench", "-b", broker.bootstrap_servers, "--duration", "600", "--rate", "1000")
        terminal.wait_for(r"produced +[1-9]")
        terminal.forget()
    with terminal:
        assert terminal.end() == 1
        assert "Latency from send to answer" in terminal.text
        assert "could not be removed" in terminal.text
        assert "error: " in terminal.text
        assert "Traceback" not in terminal.text


def test_on_a_terminal_numbers_are_live_and_ctrl_c_ends_it_with_those_so_far() -> None:
    with (
        Broker() as broker,
        PseudoTerminal("bench", "-b", broker.bootstrap_servers, "--duration", "600", "--rate", "1000") as terminal,
    ):
        terminal.wait_for(r"produced +[1-9][\s\S]*s, until 600 s")
        terminal.type("\x03")
        assert terminal.end() == 130
        assert "P99.9" in terminal.text
        assert "Latency from send to consumer" in terminal.text
        assert "Traceback" not in terminal.text
        assert topics(broker) == []


def test_an_interrupt_without_a_terminal_prints_what_there_is() -> None:
    with Broker() as broker:
        command = [str(LOGBROOK), "bench", "-b", broker.bootstrap_servers, "--duration", "600", "--json"]
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
            Client(broker.bootstrap_servers) as client,
        ):
            admin = Admin(client)
            while not any((one.offsets or 0) > 0 for one in admin.topics.all()):
                pass
            process.send_signal(signal.SIGINT)
            try:
                output, _ = process.communicate(timeout=60)
            finally:
                process.kill()
        assert process.returncode == 130
        found: dict[str, Any] = json.loads(output)
        assert found["interrupted"] is True
        assert found["produce"]["records"] > 0
        assert topics(broker) == []


def test_quantiles_are_within_two_percent() -> None:
    latencies = Latencies()
    for us in range(1, 100_001):
        latencies.add(us / 1e6)
    for share in (0.001, 0.01, 0.5, 0.9, 0.99, 0.999):
        assert latencies.quantile_ms(share) == pytest.approx(100 * share, rel=0.02)
    assert latencies.quantile_ms(1.0) == 100.0
    assert Latencies().quantile_ms(0.5) is None


def test_merging_is_adding() -> None:
    one, other, both = Latencies(), Latencies(), Latencies()
    for number in range(1_000):
        (one if number % 3 else other).add(number / 1e4, number)
        both.add(number / 1e4, number)
    one.merge(other.counts, other.max_us)
    assert (one.counts, one.max_us, one.total) == (both.counts, both.max_us, sum(range(1_000)))


def test_a_histogram_has_a_row_for_each_step_between_the_first_and_the_last() -> None:
    latencies = Latencies()
    latencies.add(0.0008, 30)
    latencies.add(0.015, 10)
    latencies.add(90.0, 1)
    rows = latencies.histogram()
    assert rows[0] == (1, 30)
    assert (20, 10) in rows
    assert rows[-1] == (90_000, 1)
    assert [count for _, count in rows].count(0) == len(rows) - 3
    assert draw_histogram(rows)[0].split() == ["<=", "1", "ms", "█" * 40, "73.17%", "30"]
    assert Latencies().histogram() == []
