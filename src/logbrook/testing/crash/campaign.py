"""Seed after seed: run its workload, cut the power everywhere, recover, compare.

Each state is recovered for real and checked. A seeded sample goes further: its recovery, and a few operations after
it, are recorded, and the power is cut at every point of that too.
"""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from logbrook.config import Durability
from logbrook.testing.crash import owner_operations as owner
from logbrook.testing.crash.kinds import KINDS, Kind
from logbrook.testing.crash.places import Cut, Place
from logbrook.testing.crash.promises import Promises
from logbrook.testing.crash.state_check import RECOVERED_AT_MS, check_state
from logbrook.testing.crash.workload import DoorOf, Workload
from logbrook.testing.crash_states import crash_states, materialise
from logbrook.testing.journal import Journal
from logbrook.testing.memory_files import MemoryFiles
from logbrook.testing.variants import Variant

_NUMBERS = re.compile(r"[0-9]+")
_SECOND_CUT_SHARE = 0.004
_SECOND_STATES_MAX = 300
_SECOND_VARIANTS = (Variant.LOST, Variant.KEPT, Variant.NAMES_ONLY, Variant.TORN, Variant.REORDERED)
# States that come of one prefix, about, once those that are the same are left out.
_STATES_PER_PREFIX = 3

_SECOND_KIND = Kind(
    "second run",
    {owner.checkpoint_step: 3, owner.truncate: 1, owner.roll: 1, owner.compact: 1, owner.retain: 1},
    (Durability.FSYNC, Durability.FSYNC, Durability.INTERVAL),
    operations=6,
    close_chance=0.05,
)


class Failure(NamedTuple):
    place: Place
    kind: str
    after: str
    error: str

    def __str__(self) -> str:
        return f"{self.place} ({self.kind}, after {self.after}): {self.error}"

    @property
    def cause(self) -> str:
        """The error without its numbers: failures of one cause mostly have the same."""
        return _NUMBERS.sub("#", self.error)[:100]


@dataclass
class Tally:
    """What was checked, and what was found."""

    states: int = 0
    second_states: int = 0
    """How many of them are of a recovery that was cut in its turn."""
    seeds: int = 0
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        self.states += other.states
        self.second_states += other.second_states
        self.seeds += other.seeds
        self.failures += other.failures


@dataclass(frozen=True)
class Campaign:
    """How seeds are checked.

    `states_max` is about how many states of a seed are checked, spread over its whole journal; without it all are.
    `door_of` puts something between the engine and the disk: a planted bug. `second_cut_share` says of how many states
    the recovery is cut in its turn.
    """

    states_max: int | None = None
    kinds: tuple[Kind, ...] = KINDS
    door_of: DoorOf = lambda files: files
    second_cut_share: float = _SECOND_CUT_SHARE

    def check_seed(self, seed: int) -> Tally:
        tally = Tally(seeds=1)
        self._check_run(self._first(seed), Place(seed), tally)
        return tally

    def replay(self, place: Place) -> str | None:
        """Check one state again. Returns what is wrong with it, if anything is."""
        workload, here = self._first(place.seed), Place(place.seed)
        promises = workload.promises.copy()
        for cut in place.cuts[:-1]:
            _run(workload)
            here = here.then(cut)
            image = _cut(workload, cut, promises)
            workload = self._second(here, image, promises)
        error = _run(workload)
        if error is not None and place.cuts[-1].prefix == len(workload.files.journal.ops):
            return error
        return _check(_cut(workload, place.cuts[-1], promises), promises, place)

    def _check_run(self, workload: Workload, at: Place, tally: Tally) -> None:
        """Run the workload and check the states it could leave."""
        kind, journal = workload.kind.name, workload.files.journal
        promises = workload.promises.copy()
        error = _run(workload)
        if error is not None:
            place = at.then(Cut(len(journal.ops), Variant.KEPT))
            tally.failures.append(Failure(place, kind, "the run itself", error))
        variants = _SECOND_VARIANTS if at.cuts else tuple(Variant)
        marks_taken = 0
        for state in crash_states(journal, variants=variants, prefixes=self._prefixes(journal, at)):
            promises.take_all(state.marks[marks_taken:])
            marks_taken = len(state.marks)
            place = at.then(Cut(state.prefix, state.variant, state.seed))
            image = MemoryFiles(state.files)
            error = _check(state.files, promises, place)
            tally.states += 1
            tally.second_states += bool(at.cuts)
            if error is not None:
                tally.failures.append(Failure(place, kind, state.last_op, error))
            elif not at.cuts and place.random().random() < self.second_cut_share:
                self._check_run(self._second(place, image, promises), place, tally)

    def _first(self, seed: int) -> Workload:
        kind = self.kinds[seed % len(self.kinds)]
        return Workload(seed, kind=kind, door_of=self.door_of)

    def _second(self, place: Place, image: MemoryFiles, promises: Promises) -> Workload:
        return Workload(
            place.random().getrandbits(32),
            image=image,
            kind=_SECOND_KIND,
            promises=promises.copy(),
            door_of=self.door_of,
            started_ms=RECOVERED_AT_MS,
        )

    def _prefixes(self, journal: Journal, at: Place) -> range | None:
        states_max = _SECOND_STATES_MAX if at.cuts else self.states_max
        if states_max is None:
            return None
        step = max(1, (len(journal.ops) + 1) * _STATES_PER_PREFIX // states_max)
        return range(at.random().randrange(step), len(journal.ops) + 1, step)


def _run(workload: Workload) -> str | None:
    try:
        workload.run()
    except Exception as error:
        return _describe(error)
    return None


def _check(files: MemoryFiles, promises: Promises, place: Place) -> str | None:
    try:
        check_state(files, promises, place.random())
    except Exception as error:
        return _describe(error)
    return None


def _cut(workload: Workload, cut: Cut, promises: Promises) -> MemoryFiles:
    """The disk that a cut leaves; its promises are added to `promises`."""
    journal = workload.files.journal
    promises.take_all(Journal(journal.base, journal.ops[: cut.prefix]).marks())
    return materialise(journal, cut.prefix, cut.variant, cut.seed)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
