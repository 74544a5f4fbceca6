"""Runs seeded workloads, simulates power loss at every point, recovers and checks each state.

For a sample of the states, the recovery and a few operations after it are recorded too, and power loss is simulated at
every point of them. A state is identified by `StateId`: `seed/prefix:VARIANT:seed`, with a second such part for a
second power loss.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from logbrook.config import Durability
from logbrook.testing.crash import owner_operations as owner
from logbrook.testing.crash.kinds import KINDS, WorkloadKind
from logbrook.testing.crash.promises import Promises
from logbrook.testing.crash.state_check import RECOVERED_AT_MS, check_state
from logbrook.testing.crash.workload import Workload, WrapFiles
from logbrook.testing.crash_states import crash_states, materialise
from logbrook.testing.journal import Journal
from logbrook.testing.memory_files import MemoryFiles
from logbrook.testing.variants import Variant

_NUMBERS = re.compile(r"[0-9]+")
_SECOND_CUT_SHARE = 0.004
_SECOND_STATES_MAX = 300
_SECOND_VARIANTS = (Variant.LOST, Variant.KEPT, Variant.NAMES_ONLY, Variant.TORN, Variant.REORDERED)
# Approximate number of distinct states per prefix.
_STATES_PER_PREFIX = 3

_SECOND_KIND = WorkloadKind(
    "second run",
    {owner.checkpoint_step: 3, owner.truncate: 1, owner.roll: 1, owner.compact: 1, owner.retain: 1},
    (Durability.FSYNC, Durability.FSYNC, Durability.INTERVAL),
    operations=6,
    close_chance=0.05,
)


class PowerLoss(NamedTuple):
    """A power loss: the journal prefix before it and the variant of what survived."""

    prefix: int
    variant: Variant
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.prefix}:{self.variant.name}:{self.seed}"


class StateId(NamedTuple):
    """The identity of a state: the workload's seed and one or two power losses."""

    seed: int
    cuts: tuple[PowerLoss, ...] = ()

    def __str__(self) -> str:
        return "/".join([str(self.seed), *map(str, self.cuts)])

    @classmethod
    def parse(cls, text: str) -> "StateId":
        """Parse the result of `str`. Raises ValueError."""
        seed, *cuts = text.split("/")
        parsed: list[PowerLoss] = []
        for cut in cuts:
            prefix, variant, variant_seed = cut.split(":")
            if variant not in Variant.__members__:
                raise ValueError(f"no such variant: {variant}")
            parsed.append(PowerLoss(int(prefix), Variant[variant], int(variant_seed)))
        if not parsed:
            raise ValueError(f"{text} has no power loss; a state looks like 17/230:TORN:0")
        return cls(int(seed), tuple(parsed))

    def then(self, cut: PowerLoss) -> "StateId":
        return StateId(self.seed, (*self.cuts, cut))

    def random(self) -> Random:
        """The random source of this state, independent of others."""
        return Random(str(self))


class Failure(NamedTuple):
    state: StateId
    kind: str
    after: str
    error: str

    def __str__(self) -> str:
        return f"{self.state} ({self.kind}, after {self.after}): {self.error}"

    @property
    def cause(self) -> str:
        """The error without its numbers, which groups failures of the same cause."""
        return _NUMBERS.sub("#", self.error)[:100]


@dataclass
class CrashTally:
    """Counts of checked states, and the failures."""

    states: int = 0
    second_states: int = 0
    """States after a second power loss, during or after recovery."""
    seeds: int = 0
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: "CrashTally") -> None:
        self.states += other.states
        self.second_states += other.second_states
        self.seeds += other.seeds
        self.failures += other.failures


@dataclass(frozen=True)
class CrashCampaign:
    """The parameters of checking a seed.

    `states_max` approximately limits the states per seed, spread over the whole journal; None checks all. `wrap_files`
    wraps the disk, for planted bugs. `second_cut_share` is the share of states that get a second power loss.
    """

    states_max: int | None = None
    kinds: tuple[WorkloadKind, ...] = KINDS
    wrap_files: WrapFiles = lambda files: files
    second_cut_share: float = _SECOND_CUT_SHARE

    def check_seed(self, seed: int) -> CrashTally:
        tally = CrashTally(seeds=1)
        self._check_run(self._first(seed), StateId(seed), tally)
        return tally

    def replay(self, state_id: StateId) -> str | None:
        """Check one state again. Returns the error, if any."""
        workload, here = self._first(state_id.seed), StateId(state_id.seed)
        promises = workload.promises.copy()
        for cut in state_id.cuts[:-1]:
            _error_of(workload.run)
            here = here.then(cut)
            image = _cut(workload, cut, promises)
            workload = self._second(here, image, promises)
        error = _error_of(workload.run)
        if error is not None and state_id.cuts[-1].prefix == len(workload.files.journal.ops):
            return error
        return _check(_cut(workload, state_id.cuts[-1], promises), promises, state_id)

    def _check_run(self, workload: Workload, at: StateId, tally: CrashTally) -> None:
        """Run the workload and check the states a power loss could leave."""
        kind, journal = workload.kind.name, workload.files.journal
        promises = workload.promises.copy()
        error = _error_of(workload.run)
        if error is not None:
            state_id = at.then(PowerLoss(len(journal.ops), Variant.KEPT))
            tally.failures.append(Failure(state_id, kind, "the end of the run", error))
        variants = _SECOND_VARIANTS if at.cuts else tuple(Variant)
        marks_taken = 0
        for state in crash_states(journal, variants=variants, prefixes=self._prefixes(journal, at)):
            promises.take_all(state.marks[marks_taken:])
            marks_taken = len(state.marks)
            state_id = at.then(PowerLoss(state.prefix, state.variant, state.seed))
            image = MemoryFiles(state.files)
            error = _check(state.files, promises, state_id)
            tally.states += 1
            tally.second_states += bool(at.cuts)
            if error is not None:
                tally.failures.append(Failure(state_id, kind, state.last_op, error))
            elif not at.cuts and state_id.random().random() < self.second_cut_share:
                self._check_run(self._second(state_id, image, promises), state_id, tally)

    def _first(self, seed: int) -> Workload:
        kind = self.kinds[seed % len(self.kinds)]
        return Workload(seed, kind=kind, wrap_files=self.wrap_files)

    def _second(self, state_id: StateId, image: MemoryFiles, promises: Promises) -> Workload:
        return Workload(
            state_id.random().getrandbits(32),
            image=image,
            kind=_SECOND_KIND,
            promises=promises.copy(),
            wrap_files=self.wrap_files,
            started_ms=RECOVERED_AT_MS,
        )

    def _prefixes(self, journal: Journal, at: StateId) -> range | None:
        states_max = _SECOND_STATES_MAX if at.cuts else self.states_max
        if states_max is None:
            return None
        step = max(1, (len(journal.ops) + 1) * _STATES_PER_PREFIX // states_max)
        return range(at.random().randrange(step), len(journal.ops) + 1, step)


def _check(files: MemoryFiles, promises: Promises, state_id: StateId) -> str | None:
    return _error_of(lambda: check_state(files, promises, state_id.random()))


def _error_of(check: Callable[[], None]) -> str | None:
    """Describe the error that `check` raises, if any."""
    try:
        check()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _cut(workload: Workload, cut: PowerLoss, promises: Promises) -> MemoryFiles:
    """Return the disk after a power loss, and add the marks before it to `promises`."""
    journal = workload.files.journal
    promises.take_all(Journal(journal.base, journal.ops[: cut.prefix]).marks())
    return materialise(journal, cut.prefix, cut.variant, cut.seed)
