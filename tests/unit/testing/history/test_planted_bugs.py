"""The checker finds every bug that is planted in a good history, and nothing in the good history itself."""

from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from logbrook.testing.history import check
from logbrook.testing.history import findings as every_finding
from logbrook.testing.history.findings import Finding
from tests.unit.testing.history.good import good_history
from tests.unit.testing.history.transaction_plants import EVERY_PLANT

SEEDS = range(12)
SEED_OF_ANYTHING = st.integers(0, 2**32)


def told(findings: tuple[Finding, ...]) -> str:
    return "\n".join(map(str, findings))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_good_history_has_no_findings(seed: int) -> None:
    verdict = check(good_history(seed, steps=1000))
    assert not verdict.findings, told(verdict.findings)


@given(SEED_OF_ANYTHING, st.integers(0, 400), st.integers(1, 4))
def test_any_good_history_has_no_findings(seed: int, steps: int, partitions: int) -> None:
    verdict = check(good_history(seed, steps, partitions))
    assert not verdict.findings, told(verdict.findings)


@pytest.mark.parametrize("name", EVERY_PLANT)
def test_a_planted_bug_is_found_and_nothing_else(name: str) -> None:
    planted = 0
    for seed in SEEDS:
        events = EVERY_PLANT[name].plant(good_history(seed), Random(seed))
        if events is not None:
            planted += 1
            findings = check(events).findings
            assert [type(one) for one in findings] == [EVERY_PLANT[name].rule] * EVERY_PLANT[name].findings, told(
                findings
            )
    assert planted >= len(SEEDS) // 2, "the good histories have too few places for it"


@given(SEED_OF_ANYTHING, st.integers(20, 200), st.sampled_from(sorted(EVERY_PLANT)))
def test_any_planted_bug_is_found(seed: int, steps: int, name: str) -> None:
    good = good_history(seed, steps)
    assume(any(type(event).__name__ == "Acknowledged" for event in good))
    events = EVERY_PLANT[name].plant(good, Random(seed))
    assume(events is not None)
    assert events is not None
    findings = check(events).findings
    assert [type(one) for one in findings] == [EVERY_PLANT[name].rule] * EVERY_PLANT[name].findings, told(findings)


def test_every_rule_has_a_planted_bug() -> None:
    rules = {one for one in vars(every_finding).values() if isinstance(one, type) and issubclass(one, Finding)}
    assert {plant.rule for plant in EVERY_PLANT.values()} == rules - {Finding}
