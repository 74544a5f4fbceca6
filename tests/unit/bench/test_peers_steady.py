"""The rule by which lines are steady, the warm-up, and the plan of a run."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.peers import plan
from bench.peers.compaction import busy_of
from bench.peers.lab import QUICK, Amounts, Lab, OutOfTimeError
from bench.peers.results import State
from bench.peers.steady import Measured, Run, SteadyLine, SteadyRule, run_in_turns
from bench.peers.system import Promise
from bench.peers.warm_up import WarmUp
from bench.peers.workers import Workers

OURS, KAFKA = ("Logbrook", "less"), ("Kafka", "less")
RULE = SteadyRule(run_s=2.0, runs=5, seconds_max=30.0)


def values(throughput: float, cpu: float = 1.0, note: str = "") -> Run:
    return [
        Measured("throughput", "MB/s", throughput, higher_is_better=True, decides=True, note=note),
        Measured("CPU", "s/GB", cpu, decides=True),
        Measured("CPU of the load", "s/GB", throughput),
    ]


def test_a_line_is_steady_when_the_medians_of_two_windows_agree_within_five_per_cent() -> None:
    assert RULE.agree([100.0] * 5 + [105.0] * 5)
    assert not RULE.agree([100.0] * 5 + [105.1] * 5)
    assert not RULE.agree([105.1] * 5 + [100.0] * 5)
    assert not RULE.agree([100.0] * 9)


def test_single_runs_do_not_decide() -> None:
    assert RULE.agree([100.0, 100.0, 100.0, 70.0, 150.0] * 2)
    assert RULE.agree([10.0] * 5 + [100.0] * 10)


def test_a_window_has_ten_seconds_at_least_and_a_line_sixty_at_most() -> None:
    rule = Amounts().rule
    assert rule.runs * rule.run_s == 10.0
    assert rule.runs_max * rule.run_s == 60.0
    for run_s in (4.0, 6.0, 10.0):
        longer = rule.with_run(run_s)
        assert longer.runs * run_s >= 10.0
        assert longer.runs_max * run_s <= 60.0
        assert not longer.is_quick


def test_every_deciding_value_must_agree() -> None:
    line = SteadyLine(RULE, OURS)
    for cpu in (2.0, 2.0, 2.0, *[1.0] * 7):
        line.add(values(100.0, cpu))
    assert not line.is_steady
    line.add(values(100.0))
    assert line.is_steady


def test_a_row_has_the_last_window_and_its_note() -> None:
    line = SteadyLine(RULE, OURS)
    for number, throughput in enumerate((*[100.0] * 6, 101.0, 102.0, 103.0, 104.0)):
        line.add(values(throughput, note="load" if number in (0, 7) else ""))
    throughput_row, cpu_row, _ = line.rows("throughput", "1 KB")
    assert throughput_row.values == (100.0, 101.0, 102.0, 103.0, 104.0)
    assert (throughput_row.state, throughput_row.note, throughput_row.runs) == (State.STEADY, "load", ())
    assert (cpu_row.note, cpu_row.higher_is_better) == ("", False)


def test_a_line_that_does_not_settle_ends_and_keeps_all_runs() -> None:
    numbers: Iterator[float] = iter([float(2**number) for number in range(99)])
    (line,) = run_in_turns(RULE, {OURS: lambda: values(next(numbers))})
    assert len(line.runs) == RULE.runs_max == 15
    row = line.rows("throughput", "1 KB")[0]
    assert row.state is State.NOT_STEADY
    assert row.runs == tuple(2.0**number for number in range(15))
    assert row.values == row.runs[-5:]


def test_systems_take_turns_until_all_have_been_steady() -> None:
    """The windows that are compared are of the same time."""
    turns: list[str] = []
    warming = iter([50.0, 60.0, 70.0, *[100.0] * 9])

    def ours() -> Run:
        turns.append("o")
        return values(100.0)

    def kafka() -> Run:
        turns.append("k")
        return values(next(warming))

    lines = run_in_turns(RULE, {OURS: ours, KAFKA: kafka})
    # Three of Kafka's first five runs were slower.
    assert "".join(turns) == "ok" * 11
    assert [line.state for line in lines] == [State.STEADY, State.STEADY]


def test_no_line_of_a_quick_run_is_steady() -> None:
    (line,) = run_in_turns(QUICK.rule, {OURS: lambda: values(100.0)})
    assert {row.state for row in line.rows("throughput", "1 KB")} == {State.QUICK}
    assert "not steady" in State.QUICK


def test_the_warm_up_ends_before_the_first_windows_that_agree() -> None:
    warm = WarmUp(RULE, probe_s=1.0, probe_cpu_s=2.0)
    for cost in (9.0, 4.0, 3.0, 3.0, *[1.0] * 7):
        warm.add(load_s=2.0, cpu_s=cost, gb=1.0)
        assert warm.runs_before is None
    for cost in (1.0, 9.0):
        warm.add(load_s=2.0, cpu_s=cost, gb=1.0)
    assert warm.runs_before == 2
    time_row, cpu_row = warm.rows(KAFKA)
    assert (time_row.values, cpu_row.values, time_row.state) == ((5.0,), (15.0,), State.STEADY)


def test_a_warm_up_that_does_not_settle_has_all_of_its_runs() -> None:
    warm = WarmUp(RULE)
    for cost in (4.0, 2.0, 1.0):
        warm.add(load_s=2.0, cpu_s=cost, gb=1.0)
    time_row, _ = warm.rows(KAFKA)
    assert (time_row.state, time_row.values, time_row.runs) == (State.NOT_STEADY, (6.0,), (4.0, 2.0, 1.0))


@pytest.fixture
def workers() -> Iterator[Workers]:
    with Workers() as workers:
        yield workers


def lab_of(workers: Workers, path: Path, **options: float) -> Lab:
    measured = [("throughput", "1 KB", *OURS), ("throughput", "1 KB", *KAFKA)]
    amounts = replace(Amounts(), rule=RULE)
    return Lab([], amounts, [Promise.LESS], path, workers, measured=measured, minutes=options.get("minutes"))


def test_a_resumed_run_leaves_out_what_every_system_has(workers: Workers, tmp_path: Path) -> None:
    lab = lab_of(workers, tmp_path)

    def fail() -> Run:
        raise AssertionError("it is measured already")

    assert lab.steady("throughput", "1 KB", {OURS: fail, KAFKA: fail}) == []
    run_of = {of: lambda: values(100.0) for of in (OURS, KAFKA, ("Redis Streams", "less"))}
    assert len(lab.steady("throughput", "1 KB", run_of)) == 9


def test_no_line_is_begun_when_the_time_is_used_up(workers: Workers, tmp_path: Path) -> None:
    lab = lab_of(workers, tmp_path, minutes=0)
    with pytest.raises(OutOfTimeError):
        lab.steady("throughput", "another", {OURS: lambda: values(100.0)})


def test_the_estimate_counts_shared_warm_ups_once() -> None:
    amounts, promises = Amounts(), [Promise.LESS, Promise.DISK]
    names = ["latency", "small_requests"]
    each = [plan.estimate(amounts, 2, promises, [name]) for name in names]
    both = plan.estimate(amounts, 2, promises, names)
    warm_ups = plan.warm_up_span(amounts, 2)
    assert both.least_s == pytest.approx(sum(span.least_s for span in each) - 2 * warm_ups.least_s)
    assert both.least_s < both.most_s
    assert plan.estimate(amounts, 2, promises, []).most_s == 0


def test_a_quick_plan_is_shorter() -> None:
    promises = [Promise.LESS, Promise.DISK]
    quick = plan.estimate(QUICK, 2, promises, plan.MEASUREMENTS)
    assert quick.most_s < plan.estimate(Amounts(), 2, promises, plan.MEASUREMENTS).least_s


def test_the_busy_time_of_a_compaction_excludes_the_pauses() -> None:
    observed = [(0.0, 1.0), (1.0, 1.5), (2.0, 1.5), (3.0, 2.5), (4.0, 2.625)]
    assert busy_of(observed) == (2.0, 1.5, 3.0)
    assert busy_of(observed[:1]).took_s == 0
