"""The checker finds every bug that is planted in a valid history, and nothing in the valid history itself."""

from functools import cache
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from logbrook.testing.history import Anomaly, Event, Rule, check
from tests.unit.testing.history.good import good_history
from tests.unit.testing.history.transaction_plants import EVERY_PLANT

SEEDS = range(8)
SEED_OF_ANYTHING = st.integers(0, 2**32)


@cache
def shared_history(seed: int) -> tuple[Event, ...]:
    return tuple(good_history(seed))


def reported(anomalies: tuple[Anomaly, ...]) -> str:
    return "\n".join(map(str, anomalies))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_good_history_has_no_anomalies(seed: int) -> None:
    verdict = check(good_history(seed, steps=1000))
    assert not verdict.anomalies, reported(verdict.anomalies)


@settings(max_examples=60)
@given(SEED_OF_ANYTHING, st.integers(0, 250), st.integers(1, 4))
def test_any_good_history_has_no_anomalies(seed: int, steps: int, partitions: int) -> None:
    verdict = check(good_history(seed, steps, partitions))
    assert not verdict.anomalies, reported(verdict.anomalies)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY_PLANT)
def test_a_planted_bug_is_found_and_nothing_else(name: str) -> None:
    planted = 0
    for seed in SEEDS:
        events = EVERY_PLANT[name].plant([*shared_history(seed)], Random(seed))
        if events is not None:
            planted += 1
            anomalies = check(events).anomalies
            assert [anomaly.rule for anomaly in anomalies] == [EVERY_PLANT[name].rule] * EVERY_PLANT[name].anomalies, (
                reported(anomalies)
            )
    assert planted >= len(SEEDS) // 2, "the good histories have too few places for it"


@given(SEED_OF_ANYTHING, st.integers(20, 200), st.sampled_from(sorted(EVERY_PLANT)))
def test_any_planted_bug_is_found(seed: int, steps: int, name: str) -> None:
    good = good_history(seed, steps)
    assume(any(type(event).__name__ == "Acknowledged" for event in good))
    events = EVERY_PLANT[name].plant(good, Random(seed))
    assume(events is not None)
    assert events is not None
    anomalies = check(events).anomalies
    assert [anomaly.rule for anomaly in anomalies] == [EVERY_PLANT[name].rule] * EVERY_PLANT[name].anomalies, reported(
        anomalies
    )


def test_every_rule_has_a_planted_bug() -> None:
    assert {plant.rule for plant in EVERY_PLANT.values()} == set(Rule)
