"""The guard's performance ratios, and that they detect a regression."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bench import guard, rows


@pytest.fixture(autouse=True)
def scratch_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the working directory: the engine's benchmarks write below it."""
    monkeypatch.chdir(tmp_path)


def test_no_operation_is_below_its_floor() -> None:
    missed = [row for row in guard.run() if not row.met]
    assert [f"{row.name}: {row.value:.3f}, floor {row.goal}" for row in missed] == []


def test_a_fivefold_slowdown_is_detected() -> None:
    """A fifth of the smallest usual ratio is below every floor."""

    def slow(reference: Callable[[], object], subject: Callable[[], object]) -> float:
        reference()
        subject()
        return 0.19 / 5

    assert [row.name for row in guard.run(slow) if row.met] == []


def test_one_slow_round_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    durations_s = iter([1.0, 40.0, 30.0, 2.0, 1.5, 2.5])
    monkeypatch.setattr(rows, "seconds", lambda _call: next(durations_s))
    assert rows.best_ratio(lambda: None, lambda: None, rounds=3) == 0.5
