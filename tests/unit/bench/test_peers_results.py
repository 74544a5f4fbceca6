"""Merging, comparison and presentation of the peers' result rows."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.peers import report
from bench.peers.comparison import Verdict, compared
from bench.peers.results import FILE, Results, Row, Samples, Stamp, State, read, read_for, stamped, write
from bench.peers.throughput import of_reference

README = Path(__file__).parents[3] / "README.md"
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


def test_results_of_a_patched_kernel_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    write(Results(machine={"kernel": "Linux 6.18.44-fc-v445"}, rows=[row("Logbrook", 1.0)]), path)
    patched = {"kernel": "Linux 6.18.51-fc-v595"}
    assert len(read_for(patched, path).rows) == 1
    assert read_for(patched, path).machine == patched
    assert read_for({"kernel": "Linux 6.19.1-fc-v595"}, path).rows == []


def test_a_note_of_any_round_is_kept() -> None:
    samples = Samples("latency")
    samples.add(("Logbrook", "disk"), "1 KB", "ack, p99", "ms", 2.0, note="rate")
    samples.add(("Logbrook", "disk"), "1 KB", "ack, p99", "ms", 4.0)
    (row,) = samples.rows()
    assert (row.median, row.low, row.high, row.note, row.state) == (3.0, 2.0, 4.0, "rate", State.ROUNDS)


def test_a_row_keeps_its_state_runs_and_stamp(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    unsteady = replace(row("Logbrook", 1.0), state=State.NOT_STEADY, runs=(3.0, 2.0, 1.0))
    write(results_of(stamped(unsteady, Stamp("1.0 (abc)", "2026-11-18"))), path)
    (kept,) = read(path).rows
    assert (kept.state, kept.runs) == (State.NOT_STEADY, (3.0, 2.0, 1.0))
    assert (kept.version, kept.day) == ("1.0 (abc)", "2026-11-18")


def test_a_resumed_run_leaves_out_lines_of_its_own_version_only() -> None:
    steady = replace(row("Logbrook", 1.0), state=State.STEADY, version="new")
    older = replace(row("Kafka", 1.0), state=State.OLDER, version="new")
    quick = replace(row("NATS JetStream", 1.0), state=State.QUICK, version="new")
    earlier = replace(row("Redis Streams", 1.0), state=State.STEADY, version="old")
    assert results_of(steady, older, quick, earlier).lines_of("new") == {steady.line}


def test_the_stored_results_can_be_read_and_have_stamps() -> None:
    rows = read(FILE).rows
    assert rows
    assert [row.key for row in rows if not row.version or not row.day] == []


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


def test_logbrook_is_compared_with_the_best_other_system_of_the_same_version() -> None:
    rows = [row("Logbrook", 10.0), row("Kafka", 5.0), row("Redis Streams", 20.0)]
    (comparison,) = compared([*rows, replace(row("NATS JetStream", 40.0), version="older")]).values()
    assert (comparison.best.system, comparison.times) == ("Redis Streams", 0.5)


def test_the_reference_is_no_competitor() -> None:
    assert compared([row("Logbrook", 10.0), row("sendfile", 5.0)]) == {}


def test_a_comparison_is_as_weak_as_its_weaker_row() -> None:
    rows = [replace(row("Logbrook", 10.0), state=State.STEADY), replace(row("Kafka", 5.0), state=State.OLDER)]
    (comparison,) = compared(rows).values()
    assert comparison.state is State.OLDER


def test_a_median_of_zero_is_not_a_division_by_zero() -> None:
    (comparison,) = compared([row("Logbrook", 0.0, higher=False), row("Kafka", 5.0, higher=False)]).values()
    assert comparison.verdict is Verdict.AHEAD


def test_the_page_shows_losses_and_wins(tmp_path: Path) -> None:
    lost = (row("Logbrook", 10.0, 11.0), row("Kafka", 30.0, 33.0, note="load"))
    won = (row("Logbrook", 8.0, what="100 B, 1 partition"), row("Kafka", 2.0, what="100 B, 1 partition"))
    page = report.write(results_of(*lost, *won), tmp_path).read_text()
    assert "Of 2 lines Logbrook is behind on 1, ahead on 1, even on 0." in page
    assert page.index("**Behind Kafka**") < page.index("**Ahead of Kafka**")
    assert "| 1 KB, 1 partition: produce, throughput, synced | 10.5 MB/s | 31.5† MB/s | **3.00 times worse** |" in page
    assert "| 100 B, 1 partition: produce, throughput, synced | 8.00 MB/s | 2.00 MB/s | 4.00 times better |" in page
    assert "| produce synced, throughput | more | 2.17 (0.33 to 4.00) | 1 | 0 | **1** |" in page
    assert "**Not measured yet:** beside, cluster_failover" in page


def test_rows_that_are_not_steady_are_marked_wherever_they_are_shown(tmp_path: Path) -> None:
    ours = replace(row("Logbrook", 10.0), state=State.NOT_STEADY, runs=(12.0, 10.0), day="2026-11-18")
    older = replace(row("Kafka", 30.0), state=State.OLDER, day="2026-11-16")
    page = report.write(results_of(ours, older), tmp_path).read_text()
    assert "| 10.0~ MB/s | 30.0° MB/s |" in page
    assert "| 1 °, 2026-11-18 |" in page
    chart = (tmp_path / "docs" / "images" / "bench-produce-disk.svg").read_text()
    assert "10.0~</text>" in chart
    assert "30.0°</text>" in chart


def test_steady_lines_come_before_older_ones(tmp_path: Path) -> None:
    older = [replace(row(system, value), state=State.OLDER) for system, value in (("Logbrook", 1.0), ("Kafka", 9.0))]
    steady = [
        replace(row(system, value, what="10 KB"), measurement="many_partitions", state=State.STEADY)
        for system, value in (("Logbrook", 8.0), ("Kafka", 9.0))
    ]
    page = report.write(results_of(*older, *steady), tmp_path).read_text()
    assert page.index("| 1,000 partitions, throughput") < page.index("| produce synced, throughput")
    assert page.index("| 10 KB: produce") < page.index("| 1 KB, 1 partition: produce")


def test_the_page_shows_consuming_as_a_multiple_of_sendfile(tmp_path: Path) -> None:
    cpu = Row(
        "consume", "1 KB", "consume, CPU of the server", "s/GB", "Logbrook", "less", (0.3, 0.6), state=State.STEADY
    )
    rows = [cpu, replace(cpu, system="Kafka", values=(0.4,)), replace(cpu, system="sendfile", values=(0.2,))]
    page = report.write(results_of(*rows, *of_reference(rows)), tmp_path).read_text()
    assert "| | Logbrook | Kafka |" in page
    assert "| 1 KB | 2.25 | 2.00 |" in page


def test_the_page_of_the_stored_results_has_two_pages_at_most(tmp_path: Path) -> None:
    words = report.write(read(FILE), tmp_path).read_text().replace("|", " ").split()
    assert len(words) < 2_000


def test_the_readme_follows_the_stored_results(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(README.read_text())
    report.write(read(FILE), tmp_path)
    assert (tmp_path / "README.md").read_text() == README.read_text()
    assert report.paragraph(read(FILE)) in README.read_text()


def test_the_readme_says_what_is_not_measured() -> None:
    assert "Not measured yet" in report.paragraph(results_of(row("Logbrook", 1.0), row("Kafka", 1.0)))


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
