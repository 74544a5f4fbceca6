"""Merging, comparison and presentation of the peers' result rows."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.peers import report
from bench.peers.comparison import Verdict, compared
from bench.peers.results import Results, Row, Samples, read, read_for, write

MACHINE = {"processor": "one"}


def row(system: str, *values: float, what: str = "1 KB, 1 partition", higher: bool = True, note: str = "") -> Row:
    return Row("throughput", what, "produce, throughput", "MB/s", system, "disk", values, higher, note)


def results_of(*rows: Row) -> Results:
    return Results(machine=MACHINE, rows=list(rows))


def test_a_repeated_measurement_replaces_its_row(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    write(results_of(row("Logbrook", 1.0), row("Kafka", 2.0)), path)
    results = read_for(MACHINE, path)
    results.merge([row("Kafka", 3.0, 5.0, 4.0)])
    write(results, path)
    assert {row.system: row.median for row in read(path).rows} == {"Logbrook": 1.0, "Kafka": 4.0}


def test_rows_of_another_machine_are_dropped_with_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "peers.json"
    write(results_of(row("Logbrook", 1.0)), path)
    assert read_for({"processor": "another"}, path).rows == []
    assert "another machine" in capsys.readouterr().err


def test_warm_up_rounds_do_not_count() -> None:
    samples = Samples("latency")
    samples.counts = False
    samples.add(("Logbrook", "disk"), "1 KB", "ack, p99", "ms", 100.0)
    samples.counts = True
    samples.add(("Logbrook", "disk"), "1 KB", "ack, p99", "ms", 2.0, note="rate")
    samples.add(("Logbrook", "disk"), "1 KB", "ack, p99", "ms", 4.0)
    (row,) = samples.rows()
    assert (row.median, row.low, row.high, row.note) == (3.0, 2.0, 4.0, "rate")


@pytest.mark.parametrize(
    ("ours", "theirs", "higher", "verdict"),
    [
        ((10.0, 11.0), (5.0, 6.0), True, Verdict.AHEAD),
        ((10.0, 11.0), (5.0, 6.0), False, Verdict.BEHIND),
        ((5.0, 6.0), (10.0, 11.0), True, Verdict.BEHIND),
        ((5.0, 10.0), (9.0, 11.0), True, Verdict.EVEN),
    ],
)
def test_overlapping_spreads_are_even(
    ours: tuple[float, ...], theirs: tuple[float, ...], higher: bool, verdict: Verdict
) -> None:
    (comparison,) = compared([row("Logbrook", *ours, higher=higher), row("Kafka", *theirs, higher=higher)]).values()
    assert comparison.verdict is verdict


def test_logbrook_is_compared_with_the_best_other_system() -> None:
    rows = [row("Logbrook", 10.0), row("Kafka", 5.0), row("Redis Streams", 20.0)]
    (comparison,) = compared(rows).values()
    assert (comparison.best.system, comparison.times) == ("Redis Streams", 0.5)


def test_a_median_of_zero_is_not_a_division_by_zero() -> None:
    (comparison,) = compared([row("Logbrook", 0.0, higher=False), row("Kafka", 5.0, higher=False)]).values()
    assert comparison.verdict is Verdict.AHEAD


def test_the_page_shows_losses_and_wins(tmp_path: Path) -> None:
    lost = (row("Logbrook", 10.0, 11.0), row("Kafka", 30.0, 33.0, note="load"))
    won = (row("Logbrook", 8.0, what="100 B, 1 partition"), row("Kafka", 2.0, what="100 B, 1 partition"))
    page = report.write(results_of(*lost, *won), tmp_path).read_text()
    assert "ahead of the best other system on 1, behind on 1" in page
    assert "ahead of Kafka on 1, behind on 1" in page
    assert "**Not measured in these results:** Kafka's own performance tools; Latency" in page
    assert "| 1 KB, 1 partition | 10.5 (10.0 to 11.0) | 31.5 (30.0 to 33.0) † | **3.00 times worse** |" in page
    assert "| 100 B, 1 partition | 8.00 (8.00 to 8.00) | 2.00 (2.00 to 2.00) | 4.00 times better |" in page


def test_charts_are_well_formed_and_old_charts_are_deleted(tmp_path: Path) -> None:
    images = tmp_path / "docs" / "images"
    images.mkdir(parents=True)
    (images / "bench-of-yore.svg").write_text("<svg/>")
    (images / "console.png").write_bytes(b"not ours")
    page = report.write(results_of(row("Logbrook", 10.0), row("Kafka", 0.0)), tmp_path).read_text()
    assert sorted(path.name for path in images.iterdir()) == ["bench-produce-disk.svg", "console.png"]
    assert "images/bench-produce-disk.svg" in page
    texts = [text.text for text in ElementTree.parse(images / "bench-produce-disk.svg").iter() if text.text]
    assert {"Logbrook", "Kafka"} <= set(texts)


def test_without_results_the_page_reports_it(tmp_path: Path) -> None:
    assert "Nothing has been measured yet" in report.write(Results(), tmp_path).read_text()
