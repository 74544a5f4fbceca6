"""The seed determines a workload, so that a failing state can be reproduced."""

from functools import cache

import pytest

from logbrook.testing.clock import FakeClock
from logbrook.testing.crash import KINDS, CrashCampaign, PowerLoss, StateId, Workload
from logbrook.testing.crash.promises import Acked, CompactionBegun, Shown, Truncated
from logbrook.testing.journal import Journal, Rename
from logbrook.testing.seeded_random import SeededRandom
from logbrook.testing.variants import Variant

SEEDS = range(3 * len(KINDS))


@cache
def journal_of(seed: int) -> Journal:
    return new_journal_of(seed)


def new_journal_of(seed: int) -> Journal:
    workload = Workload(seed)
    workload.run()
    return workload.files.journal


@pytest.mark.parametrize("seed", range(len(KINDS)))
def test_the_same_seed_gives_the_same_journal(seed: int) -> None:
    assert new_journal_of(seed) == journal_of(seed)


def test_other_seeds_give_other_journals() -> None:
    ops = [tuple(map(repr, journal_of(seed).ops)) for seed in range(4)]
    assert len(set(ops)) == 4


def test_the_same_seed_gives_the_same_tally() -> None:
    campaign = CrashCampaign(states_max=30, second_cut_share=0.02)
    assert campaign.check_seed(3) == campaign.check_seed(3)


def test_workloads_exercise_their_operations() -> None:
    """A workload whose compactions and retention remove nothing tests nothing."""
    renamed: list[str] = []
    marks: list[type] = []
    for seed in SEEDS:
        journal = journal_of(seed)
        renamed += [f"{op.path} {op.target}" for op in journal.ops if isinstance(op, Rename)]
        marks += [type(mark) for mark in journal.marks()]
    assert sum(".swap" in name for name in renamed) > 20, "compactions"
    assert sum(name.endswith(".log.deleted") for name in renamed) > 20, "segments that went"
    assert sum(name.endswith("checkpoint") for name in renamed) > 50, "checkpoints"
    assert marks.count(Acked) > 200
    assert marks.count(Truncated) > 10
    assert marks.count(CompactionBegun) > 20
    assert marks.count(Shown) > len(SEEDS)


def test_a_state_id_is_parsed_as_printed() -> None:
    place = StateId(17, (PowerLoss(230, Variant.TORN, 2), PowerLoss(4, Variant.LOST)))
    assert str(place) == "17/230:TORN:2/4:LOST:0"
    assert StateId.parse(str(place)) == place


@pytest.mark.parametrize("text", ["17", "17/230", "17/230:BENT:0", "x/230:TORN:0", "17/230:TORN:zero"])
def test_an_invalid_state_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        StateId.parse(text)


def test_a_seeded_random_gives_the_same_tokens_again() -> None:
    assert SeededRandom(1).token(8) == SeededRandom(1).token(8) != SeededRandom(2).token(8)


def test_simulated_time_advances_only_when_it_is_moved() -> None:
    clock = FakeClock(1_000)
    assert (clock.now_ms(), clock.monotonic_s()) == (1_000, 0.0)
    assert clock.advance(500) == 1_500
    assert (clock.now_ms(), clock.monotonic_s()) == (1_500, 0.5)
    with pytest.raises(ValueError, match="cannot be moved back"):
        clock.advance(-1)
