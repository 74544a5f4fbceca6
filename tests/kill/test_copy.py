"""Records are copied exactly once while the broker and the copiers are killed.

A failure names its seed. To run it again:

    python -m logbrook.testing.copy --seed 7 --broker-kills 2 --copier-kills 2 --copier-stops 1
"""

from collections.abc import Callable
from random import Random

import pytest

from logbrook.testing.copy.campaign import CopyCampaign
from logbrook.testing.copy.comparison import Record, differences, transform
from logbrook.testing.copy.plan import CopyPlan, Fault, schedule
from tests.kill.conftest import KILLS

# The first schedule injects both kills of a copier within a transaction.
SEEDS = range(7, 11)
FAULTS = {Fault.BROKER_KILLED: 3, Fault.COPIER_KILLED: 3, Fault.COPIER_PAUSED: 1}
FEW_FAULTS = {Fault.BROKER_KILLED: 2, Fault.COPIER_KILLED: 2, Fault.COPIER_PAUSED: 1}
RUNS = [
    pytest.param(20_000, 1_500, FEW_FAULTS),
    pytest.param(100_000, 750, FAULTS, marks=pytest.mark.long),
]
ORIGINALS: dict[int, list[Record]] = {
    number: [(f"key {key}".encode(), f"{number}/{key}".encode()) for key in range(6)] for number in range(2)
}
COMMITTED = {0: 6, 1: 6}

RecordProperty = Callable[[str, object], None]


@pytest.mark.parametrize(("records", "per_transaction", "faults"), RUNS)
def test_every_record_is_copied_once_and_in_order_over_kills(
    records: int, per_transaction: int, faults: dict[Fault, int], record_property: RecordProperty
) -> None:
    """Each run has to be good. Another follows if no kill hit an open transaction, which depends on timing."""
    kills = discarded = 0
    for seed in SEEDS:
        plan = CopyPlan(records=records, per_transaction=per_transaction, seed=seed, faults=faults)
        outcome = CopyCampaign(plan).run()
        print(outcome)  # noqa: T201 - N is the result
        assert outcome.is_good, str(outcome)
        assert outcome.faults == faults
        assert outcome.copied == records
        kills += outcome.faults[Fault.BROKER_KILLED] + outcome.faults[Fault.COPIER_KILLED]
        discarded += outcome.discarded
        if discarded:
            break
    record_property(KILLS, kills)
    assert discarded > 0, "no kill hit an open transaction"


def test_a_copier_that_commits_offsets_apart_from_its_transactions_is_caught() -> None:
    """A kill has to hit the time between the two commits, so more than one run may be needed."""
    faults = {Fault.COPIER_KILLED: 2}
    plans = (
        CopyPlan(records=10_000, seed=seed, faults=faults, copier_flags=("--offsets-apart",)) for seed in range(1, 9)
    )
    assert any("came more than once" in " ".join(CopyCampaign(plan).run().differences) for plan in plans)


def copied() -> dict[int, list[Record]]:
    return {number: [(key, transform(value)) for key, value in records] for number, records in ORIGINALS.items()}


def test_a_complete_copy_in_order_has_no_differences() -> None:
    assert differences(ORIGINALS, copied(), COMMITTED) == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda copies: copies[0].pop(3), "partition 0: 1 are lost"),
        (lambda copies: copies.pop(1), "partition 1: 6 are lost"),
        (lambda copies: copies[0].append(copies[0][2]), "partition 0: 1 came more than once"),
        (lambda copies: copies[0].insert(1, copies[0].pop(4)), "partition 0: 1 are out of order"),
        (lambda copies: copies[0].append(copies[1].pop()), "partition 0: 1 are not copies"),
        (lambda copies: copies[1].append((b"key 1", b"1/1")), "partition 1: 1 are not copies"),
    ],
)
def test_differences_of_a_copy_are_reported(damage: Callable[[dict[int, list[Record]]], object], message: str) -> None:
    copies = copied()
    damage(copies)
    assert message in "\n".join(differences(ORIGINALS, copies, COMMITTED))


@pytest.mark.parametrize("offset", [5, 7, None])
def test_offsets_that_do_not_match_the_copies_are_reported(offset: int | None) -> None:
    committed = COMMITTED | {0: offset} if offset is not None else {1: 6}
    assert differences(ORIGINALS, copied(), committed) == [
        f"partition 0: the group has committed {offset} of 6 records"
    ]


def test_a_schedule_follows_from_its_seed_and_has_every_fault() -> None:
    planned = schedule(Random(3), FAULTS)
    assert planned == schedule(Random(3), FAULTS)
    assert sorted(step.fault for step in planned) == sorted(
        fault for fault, times in FAULTS.items() for _ in range(times)
    )
    assert [step.copied_share for step in planned] == sorted(step.copied_share for step in planned)
