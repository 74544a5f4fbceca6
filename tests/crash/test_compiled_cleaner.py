"""A power loss during a compaction breaks no promise if compiled code has cleaned the segments."""

import pytest

from logbrook.compactor.cleaner import CompiledCleaner
from logbrook.records.columns.cleaning import DigestMap
from logbrook.storage import compaction
from logbrook.storage.cleaner import CleaningJob
from logbrook.storage.compaction import Compaction
from logbrook.testing.crash import KINDS, CrashCampaign, CrashTally

STATES_PER_SEED = 80
# A workload of one seed may have no compaction.
SEEDS = 4
COMPACTIONS = [number for number, kind in enumerate(KINDS) if "compaction" in kind.name]


@pytest.mark.parametrize("kind", COMPACTIONS, ids=[KINDS[kind].name for kind in COMPACTIONS])
def test_everything_promised_survives_a_power_loss(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = 0

    def compiled(job: CleaningJob, source: Compaction) -> CompiledCleaner:
        nonlocal passes
        passes += 1
        return CompiledCleaner(job, source._log.environment.files.open, DigestMap(20, bytes(16)))

    monkeypatch.setattr(compaction, "PureCleaner", compiled)
    tally = CrashTally()
    for number in range(SEEDS):
        tally.add(CrashCampaign(states_max=STATES_PER_SEED).check_seed(kind + number * len(KINDS)))
    assert not tally.failures, "\n".join(map(str, tally.failures[:5]))
    assert passes > SEEDS
    assert tally.states >= SEEDS * STATES_PER_SEED // 2
