"""The parts of the benchmark of TLS that need no broker: its rows, and the brokers that it measures."""

from pathlib import Path

import pytest

from bench.tls import KAFKA, LOGBROOK, PLAIN, TLS, Cost, _subjects, rows_of


def test_ratios_are_the_median_of_those_of_the_rounds() -> None:
    rounds = [
        {
            (LOGBROOK, PLAIN): Cost(noise, 400, 1, 800),
            (LOGBROOK, TLS): Cost(3 * noise, 200, 2, 200),
            (KAFKA, PLAIN): Cost(2, 800, 1, 800),
            (KAFKA, TLS): Cost(6, 100, 4, 400),
        }
        for noise in (1, 2, 10)
    ]
    values = {row.name: (row.value, row.unit) for row in rows_of(rounds)}
    assert values["1 KB messages over TLS, produce: broker CPU"] == (6, "s/GB")
    assert values["1 KB messages, produce: broker CPU, TLS to plain text"] == (3, "times")
    assert values["Kafka, 1 KB messages, fetch: broker CPU, TLS to plain text"] == (4, "times")
    assert values["1 KB messages over TLS, produce: broker CPU, to Kafka"] == (1, "times")
    assert values["1 KB messages over TLS, produce: throughput, to Kafka"] == (2, "times")
    assert values["1 KB messages over plain text, produce: throughput, to Kafka"] == (0.5, "times")


def test_without_java_kafka_is_skipped_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert list(_subjects(tmp_path)) == [LOGBROOK]
    said = capsys.readouterr().out
    assert said.startswith("SKIPPED: Kafka over plain text and TLS is not measured")
    assert "there is no java" in said


def test_without_kafka_there_are_no_rows_of_it() -> None:
    rows = rows_of([{(LOGBROOK, PLAIN): Cost(1, 400, 1, 800), (LOGBROOK, TLS): Cost(3, 200, 2, 200)}])
    assert len(rows) == 12
    assert not [row.name for row in rows if KAFKA in row.name]
