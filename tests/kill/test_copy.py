"""Records are copied exactly once, though the broker and the copiers are killed meanwhile.

A failure tells its seed. To see it again:

    python -m logbrook.testing.copy --seed 1 --broker-kills 3 --copier-kills 3 --copier-stops 1
"""

from collections.abc import Callable
from random import Random

import pytest

from logbrook.testing.copy.campaign import Campaign
from logbrook.testing.copy.harms import Harm, schedule
from logbrook.testing.copy.judge import Record, differences
from logbrook.testing.copy.plan import Plan
from logbrook.testing.copy.transform import transform
from tests.kill.conftest import KILLS

_RUNS_MAX = 4
HARMS = {Harm.BROKER_KILLED: 3, Harm.COPIER_KILLED: 3, Harm.COPIER_HELD_UP: 1}
ORIGINALS: dict[int, list[Record]] = {
    number: [(f"key {key}".encode(), f"{number}/{key}".encode()) for key in range(6)] for number in range(2)
}
COMMITTED = {0: 6, 1: 6}

RecordProperty = Callable[[str, object], None]


def test_every_record_is_copied_once_and_in_order_over_kills(record_property: RecordProperty) -> None:
    """Every run has to be good; whether a kill hits the middle of a transaction is up to chance in each."""
    kills = discarded = 0
    for seed in range(1, _RUNS_MAX + 1):
        outcome = Campaign(Plan(records=100_000, per_transaction=750, seed=seed, harms=HARMS)).run()
        print(outcome)  # noqa: T201 - N is the result
        assert outcome.is_good, str(outcome)
        assert outcome.harms == HARMS
        assert outcome.copied == 100_000
        kills += outcome.harms[Harm.BROKER_KILLED] + outcome.harms[Harm.COPIER_KILLED]
        discarded += outcome.discarded
        if discarded:
            break
    record_property(KILLS, kills)
    assert discarded > 0, "nobody was killed in the middle of a transaction"


def test_a_copier_that_commits_offsets_apart_from_its_transactions_is_caught() -> None:
    """A kill has to hit the moment between the two, so there may have to be more than one run."""
    harms = {Harm.COPIER_KILLED: 3}
    plans = (Plan(records=15_000, seed=seed, harms=harms, copier_flags=("--offsets-apart",)) for seed in range(2, 10))
    assert any("came more than once" in " ".join(Campaign(plan).run().differences) for plan in plans)


def copied() -> dict[int, list[Record]]:
    return {number: [(key, transform(value)) for key, value in records] for number, records in ORIGINALS.items()}


def test_a_copy_of_everything_in_order_differs_in_nothing() -> None:
    assert differences(ORIGINALS, copied(), COMMITTED) == []


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda copies: copies[0].pop(3), "partition 0: 1 are lost"),
        (lambda copies: copies.pop(1), "partition 1: 6 are lost"),
        (lambda copies: copies[0].append(copies[0][2]), "partition 0: 1 came more than once"),
        (lambda copies: copies[0].insert(1, copies[0].pop(4)), "partition 0: 1 are out of order"),
        (lambda copies: copies[0].append(copies[1].pop()), "partition 0: 1 are no copies"),
        (lambda copies: copies[1].append((b"key 1", b"1/1")), "partition 1: 1 are no copies"),
    ],
)
def test_what_is_wrong_with_a_copy_is_told(damage: Callable[[dict[int, list[Record]]], object], told: str) -> None:
    copies = copied()
    damage(copies)
    assert told in "\n".join(differences(ORIGINALS, copies, COMMITTED))


@pytest.mark.parametrize("offset", [5, 7, None])
def test_offsets_that_do_not_agree_with_the_copies_are_told(offset: int | None) -> None:
    committed = COMMITTED | {0: offset} if offset is not None else {1: 6}
    assert differences(ORIGINALS, copied(), committed) == [
        f"partition 0: the group has committed {offset} of 6 records"
    ]


def test_a_schedule_follows_from_its_seed_and_has_every_harm() -> None:
    found = schedule(Random(3), HARMS)
    assert found == schedule(Random(3), HARMS)
    assert sorted(one.harm for one in found) == sorted(harm for harm, times in HARMS.items() for _ in range(times))
    assert [one.copied_share for one in found] == sorted(one.copied_share for one in found)
