"""Nothing that was promised is lost to a power loss, wherever it comes, be it in the middle of recovery.

The states are shared out in shards, so that processes can take them side by side. Shards have seeds of their own; each
goes from seed to seed until it has checked its share. A failure names its place:

    python -m logbrook.testing.crash --replay 17/230:TORN:0
"""

from collections.abc import Callable
from itertools import count
from math import gcd

import pytest

from logbrook.testing.crash import KINDS, Campaign, Failure, Tally
from tests.crash.conftest import SECOND_STATES_CHECKED, STATES_CHECKED

STATES_MIN = 20_000
# Shares no factor with the number of kinds, so that each shard has workloads of many kinds.
SHARDS = 13
STATES_PER_SHARD = 1540

RecordProperty = Callable[[str, object], None]


def told(failures: list[Failure]) -> str:
    return "\n".join(map(str, failures[:5]))


def test_the_shards_add_up_and_meet_every_kind_of_workload() -> None:
    assert SHARDS * STATES_PER_SHARD >= STATES_MIN
    assert gcd(SHARDS, len(KINDS)) == 1


@pytest.mark.parametrize("shard", range(SHARDS))
def test_everything_promised_survives_a_power_loss(shard: int, record_property: RecordProperty) -> None:
    total = Tally()
    for seed in count(shard, SHARDS):
        total.add(Campaign().check_seed(seed))
        if total.states >= STATES_PER_SHARD:
            break
    print(f"{total.states} states, {total.second_states} of them after a second cut")  # noqa: T201 - N is the result
    record_property(STATES_CHECKED, total.states)
    record_property(SECOND_STATES_CHECKED, total.second_states)
    assert not total.failures, told(total.failures)
    assert total.states >= STATES_PER_SHARD


@pytest.mark.parametrize("seed", range(0, len(KINDS), 2))
def test_a_recovery_that_is_cut_is_recovered_from(seed: int, record_property: RecordProperty) -> None:
    """A few states of every other kind of workload, and of each of them every recovery that a second cut may end."""
    tally = Campaign(states_max=3, second_cut_share=1.0).check_seed(seed)
    record_property(STATES_CHECKED, tally.states)
    record_property(SECOND_STATES_CHECKED, tally.second_states)
    assert not tally.failures, told(tally.failures)
    assert tally.second_states > tally.states - tally.second_states > 0
