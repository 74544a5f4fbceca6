"""No promise is broken by a power loss, at whatever operation on the disk it comes, also during recovery.

`make test` checks states spread over a workload of each kind; `make test-all` checks every state of more of them,
in shards that run side by side. A failure names its place:

    python -m logbrook.testing.crash --replay 17/230:TORN:0
"""

from collections.abc import Callable
from itertools import count
from math import gcd

import pytest

from logbrook.testing.crash import KINDS, CrashCampaign, CrashTally, Failure
from tests.crash.conftest import SECOND_STATES_CHECKED, STATES_CHECKED

STATES_MIN = 20_000
# As many as `test_planted_bugs` takes from a seed to find each of its bugs.
STATES_PER_SEED = 50
# Shares no factor with the number of kinds, so that each shard has workloads of many kinds.
SHARDS = 13
STATES_PER_SHARD = 1540

RecordProperty = Callable[[str, object], None]


def summary(failures: list[Failure]) -> str:
    return "\n".join(map(str, failures[:5]))


def test_the_shards_add_up_and_contain_every_kind_of_workload() -> None:
    assert SHARDS * STATES_PER_SHARD >= STATES_MIN
    assert gcd(SHARDS, len(KINDS)) == 1


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=[kind.name for kind in KINDS])
def test_everything_promised_survives_a_power_loss(kind: int, record_property: RecordProperty) -> None:
    tally = CrashCampaign(states_max=STATES_PER_SEED).check_seed(kind)
    record_property(STATES_CHECKED, tally.states)
    record_property(SECOND_STATES_CHECKED, tally.second_states)
    assert not tally.failures, summary(tally.failures)
    assert tally.states >= STATES_PER_SEED // 2


@pytest.mark.long
@pytest.mark.parametrize("shard", range(SHARDS))
def test_everything_promised_survives_a_power_loss_in_every_state(shard: int, record_property: RecordProperty) -> None:
    total = CrashTally()
    for seed in count(shard, SHARDS):
        total.add(CrashCampaign().check_seed(seed))
        if total.states >= STATES_PER_SHARD:
            break
    print(f"{total.states} states, {total.second_states} of them after a second cut")  # noqa: T201 - N is the result
    record_property(STATES_CHECKED, total.states)
    record_property(SECOND_STATES_CHECKED, total.second_states)
    assert not total.failures, summary(total.failures)
    assert total.states >= STATES_PER_SHARD


# The workloads of other kinds have second cuts in `test_everything_promised_survives_a_power_loss`.
CUT_IN_SHORT = ("truncation", "producers", "transactions", "partitions")
CUT_SEEDS = [
    pytest.param(seed, id=kind.name, marks=() if kind.name in CUT_IN_SHORT else pytest.mark.long)
    for seed, kind in enumerate(KINDS)
]


@pytest.mark.parametrize("seed", CUT_SEEDS)
def test_a_recovery_that_is_cut_is_recovered_from(seed: int, record_property: RecordProperty) -> None:
    """Check a few states of a workload, and every state that a second power loss during their recovery leaves."""
    tally = CrashCampaign(states_max=3, second_cut_share=1.0).check_seed(seed)
    record_property(STATES_CHECKED, tally.states)
    record_property(SECOND_STATES_CHECKED, tally.second_states)
    assert not tally.failures, summary(tally.failures)
    assert tally.second_states > tally.states - tally.second_states > 0
