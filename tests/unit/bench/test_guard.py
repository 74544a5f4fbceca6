"""The guard's ratios, and that it would notice."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bench import guard, rows


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's benchmarks write below the working directory."""
    monkeypatch.chdir(tmp_path)


def test_nothing_is_several_times_slower_than_the_system_calls_below_it() -> None:
    missed = [row for row in guard.run() if not row.met]
    assert [f"{row.name}: {row.value:.3f}, and not {row.goal}" for row in missed] == []


def test_a_ratio_of_a_fifth_of_what_is_usual_is_noticed() -> None:
    """Of the smallest one, so it is far too little for each of the others."""

    def slow(reference: Callable[[], object], subject: Callable[[], object]) -> float:
        reference()
        subject()
        return 0.19 / 5

    assert [row.name for row in guard.run(slow) if row.met] == []


def test_one_slow_round_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    in_turn = iter([1.0, 40.0, 30.0, 2.0, 1.5, 2.5])
    monkeypatch.setattr(rows, "seconds", lambda _call: next(in_turn))
    assert rows.best_ratio(lambda: None, lambda: None, rounds=3) == 0.5
