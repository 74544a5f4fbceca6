"""`logbrook bench`: against a real broker, by itself, on a terminal, and interrupted."""

import json
import signal
import subprocess
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from logbrook.cli.bench_load import LatencyHistogram, draw_histogram
from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.testing import Broker
from logbrook.testing.processes import wait_until
from tests.unit.cli.invocation import SECONDS_MAX, invoke
from tests.unit.cli.pseudo_terminal import PseudoTerminal
from tests.unit.cli.shell import Done, Shell


def start(broker: Broker, *arguments: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """The command as a process: a benchmark forks, which a test with a broker in its threads must not."""
    return Shell(broker.bootstrap_servers, Path("/nowhere")).start("bench", *arguments)


def run(broker: Broker, *arguments: str) -> Done:
    with start(broker, *arguments) as process:
        out, err = process.communicate(timeout=SECONDS_MAX)
        return Done(process.returncode, out.decode(), err.decode())


def topics(broker: Broker) -> list[str]:
    with Client(broker.bootstrap_servers) as client:
        return Admin(client).topics.names()


def test_all_produced_records_are_consumed_and_the_topic_is_deleted(logbrook_broker: Broker) -> None:
    """The benchmarks run at the same time."""
    before = topics(logbrook_broker)
    with ExitStack() as stack:
        running = [
            (int(arguments[1]), stack.enter_context(start(logbrook_broker, *arguments, "--json")))
            for arguments in (
                ["--count", "3000", "-p", "3", "--producers", "2", "--consumers", "2"],
                ["--count", "1001", "--batch", "100", "--size", "10", "-z", "zstd", "--acks", "1", "--in-flight", "1"],
                ["--count", "500", "--acks", "0", "-z", "gzip"],
                ["--count", "500", "--rate", "5000"],
            )
        ]
        for count, process in running:
            out, err = process.communicate(timeout=SECONDS_MAX)
            assert (process.returncode, err) == (0, b"")
            check_report(json.loads(out), count)
    assert topics(logbrook_broker) == before


def check_report(report: dict[str, Any], count: int) -> None:
    for side in (report["produce"], report["consume"]):
        assert side["records"] == count
        latency = side["latency_ms"]
        assert 0 <= latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p99.9"] <= latency["max"]
        assert sum(row["records"] for row in latency["histogram"]) == count
    assert report["produce"]["bytes"] == report["consume"]["bytes"]
    assert (report["failure"], report["interrupted"]) == (None, False)


def test_the_table_has_both_sides_and_histograms(logbrook_broker: Broker) -> None:
    done = run(logbrook_broker, "--count", "1000")
    lines = done.out.splitlines()
    assert lines[0].split()[:3] == ["THROUGHPUT", "RECORDS", "SECONDS"]
    assert lines[4].split() == ["LATENCY", "IN", "MS", "P50", "P90", "P99", "P99.9", "MAX"]
    assert [line.split()[:2] for line in lines[1:3]] == [["produced", "1,000"], ["consumed", "1,000"]]
    assert "Latency from send to answer" in lines
    assert "█" in done.out


def test_a_kept_topic_can_be_consumed_without_producers(logbrook_broker: Broker) -> None:
    done = run(logbrook_broker, "--topic", "bench-kept", "--keep", "--count", "200", "--consumers", "0", "--json")
    assert "logbrook topic delete bench-kept" in done.err
    assert json.loads(done.out)["consume"] is None
    report = json.loads(run(logbrook_broker, "--topic", "bench-kept", "--producers", "0", "--json").out)
    assert (report["produce"], report["consume"]["records"], report["consume"]["latency_ms"]) == (None, 200, None)
    # The topic existed before, so the benchmark does not delete it.
    run(logbrook_broker, "--topic", "bench-kept", "--count", "10")
    assert "bench-kept" in topics(logbrook_broker)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--producers", "0"], 2, "error: --topic: name the topic to read"),
        (["--producers", "0", "--consumers", "0"], 2, "there is nothing to measure"),
        (["--count", "1", "--producers", "2"], 2, "error: --count: it is less than the number of producers"),
        (["--producers", "0", "--topic", "not-there"], 1, "it does not exist; `logbrook topic list` shows the topics"),
        (["--topic", "no/name", "--count", "1"], 1, "error: creating topic no/name"),
    ],
)
def test_failures_before_the_start_are_reported_in_one_sentence(
    logbrook_broker: Broker, arguments: list[str], code: int, message: str
) -> None:
    done = invoke("bench", "-b", logbrook_broker.bootstrap_servers, *arguments)
    check_failure(Done(done.returncode, done.stdout.decode(), done.stderr.decode()), code, message)


def test_a_failure_of_a_worker_is_reported_in_one_sentence(logbrook_broker: Broker) -> None:
    done = run(logbrook_broker, "--count", "1", "--size", "3000000")
    check_failure(done, 1, "a record is larger than the topic's max.message.bytes")


def check_failure(done: Done, code: int, message: str) -> None:
    assert done.code == code
    assert message in done.err
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) == 1


def test_an_unreachable_broker_is_an_error() -> None:
    done = invoke("bench", "-b", "127.0.0.1:9")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"error: cannot connect to 127.0.0.1:9")


def test_a_lost_broker_ends_the_benchmark_with_the_results_so_far() -> None:
    with Broker() as broker:
        terminal = PseudoTerminal("bench", "-b", broker.bootstrap_servers, "--duration", "600", "--rate", "1000")
        terminal.wait_for(r"produced +[1-9]")
        terminal.forget()
    with terminal:
        assert terminal.end() == 1
        assert "Latency from send to answer" in terminal.text
        assert "could not be deleted" in terminal.text
        assert "error: " in terminal.text
        assert "Traceback" not in terminal.text


def test_results_are_live_on_a_terminal_until_ctrl_c() -> None:
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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_prints_the_results_so_far_and_deletes_the_topic(number: signal.Signals, code: int) -> None:
    with Broker() as broker:
        with start(broker, "--duration", "600", "--json") as process:
            workers = started_workers(broker, process)
            process.send_signal(number)
            output, errors = process.communicate(timeout=SECONDS_MAX)
        assert (process.returncode, errors) == (code, b"")
        report: dict[str, Any] = json.loads(output)
        assert report["interrupted"] is True
        assert report["produce"]["records"] > 0
        assert topics(broker) == []
        assert wait_until(lambda: not any(is_running(pid) for pid in workers), SECONDS_MAX)


def test_the_workers_end_with_a_killed_benchmark() -> None:
    with Broker() as broker, start(broker, "--duration", "600", "--producers", "2") as process:
        workers = started_workers(broker, process)
        assert len(workers) == 3
        process.kill()
        assert wait_until(lambda: not any(is_running(pid) for pid in workers), SECONDS_MAX)


def started_workers(broker: Broker, process: subprocess.Popen[bytes]) -> list[int]:
    """Return the process ids of the workers once records are written."""
    with Client(broker.bootstrap_servers) as client:
        admin = Admin(client)
        assert wait_until(lambda: any((topic.offsets or 0) > 0 for topic in admin.topics.all()), SECONDS_MAX)
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    """Return False for a process that has exited, even if it has not been reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_quantiles_are_within_two_percent() -> None:
    latencies = LatencyHistogram()
    for us in range(1, 100_001):
        latencies.add(us / 1e6)
    for share in (0.001, 0.01, 0.5, 0.9, 0.99, 0.999):
        assert latencies.quantile_ms(share) == pytest.approx(100 * share, rel=0.02)
    assert latencies.quantile_ms(1.0) == 100.0
    assert LatencyHistogram().quantile_ms(0.5) is None


def test_merging_adds_counts() -> None:
    first, second, both = LatencyHistogram(), LatencyHistogram(), LatencyHistogram()
    for number in range(1_000):
        (first if number % 3 else second).add(number / 1e4, number)
        both.add(number / 1e4, number)
    first.merge(second)
    assert (first.counts, first.max_us, first.total) == (both.counts, both.max_us, sum(range(1_000)))


def test_a_histogram_has_a_row_for_each_step_between_the_first_and_the_last() -> None:
    latencies = LatencyHistogram()
    latencies.add(0.0008, 30)
    latencies.add(0.015, 10)
    latencies.add(90.0, 1)
    rows = latencies.rows()
    assert rows[0] == (1, 30)
    assert (20, 10) in rows
    assert rows[-1] == (90_000, 1)
    assert [count for _, count in rows].count(0) == len(rows) - 3
    assert draw_histogram(rows)[0].split() == ["<=", "1", "ms", "█" * 40, "73.17%", "30"]
    assert LatencyHistogram().rows() == []
