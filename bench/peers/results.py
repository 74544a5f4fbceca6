"""Result rows, with the value of every round, and the file that stores them.

A row is identified by measurement, case (`what`), metric, system and promise. A new measurement replaces its row, so
parts of a run can be repeated. Each row has the version of the tree that was measured, the day, and its state: whether
it follows the rule of `steady.py`. Rows of different machines are not comparable: those of another machine are dropped.
"""

import json
import re
import statistics
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "peers.json"


class State(StrEnum):
    """The way in which a row was measured. A start or a restart has rounds, and no steady state."""

    STEADY = "steady"
    NOT_STEADY = "not steady"
    ROUNDS = "rounds"
    QUICK = "quick run, not steady"
    # Measured before the rule of `steady.py`, in runs of 0.8 to 10 s after a short warm-up.
    OLDER = "older short run"


@dataclass(frozen=True)
class Stamp:
    """The version of the tree that was measured, and the day."""

    version: str
    day: str
    # True if the tree has changes beyond that version.
    is_changed: bool = False


@dataclass(frozen=True)
class Row:
    """One metric of one case and system. `runs` are all runs of a line that is not steady."""

    measurement: str
    what: str
    metric: str
    unit: str
    system: str
    promise: str
    values: tuple[float, ...]
    higher_is_better: bool = False
    note: str = ""
    state: State = State.ROUNDS
    runs: tuple[float, ...] = ()
    version: str = ""
    day: str = ""

    @property
    def line(self) -> tuple[str, str, str, str]:
        """Return the key of the line: all metrics of a case of one system."""
        return (self.measurement, self.what, self.system, self.promise)

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        return (self.measurement, self.what, self.metric, self.system, self.promise)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)


@dataclass
class Results:
    machine: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    # Systems that were not measured, and the reason.
    skipped: dict[str, str] = field(default_factory=dict)
    # (system, promise, settings, meaning of an acknowledgement)
    variants: list[tuple[str, str, str, str]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def merge(self, rows: Iterable[Row]) -> None:
        by_key = {row.key: row for row in self.rows}
        by_key.update((row.key, row) for row in rows)
        self.rows = list(by_key.values())

    def lines_of(self, version: str) -> set[tuple[str, str, str, str]]:
        """Return the lines that are measured by today's rules with this version of the tree."""
        kept = (State.STEADY, State.NOT_STEADY, State.ROUNDS)
        return {row.line for row in self.rows if row.version == version and row.state in kept}

    def of(self, measurement: str) -> list[Row]:
        return [row for row in self.rows if row.measurement == measurement]


class Samples:
    """Collects the values of rounds into rows, in the order in which they were first added."""

    def __init__(self, measurement: str, state: State = State.ROUNDS) -> None:
        self._measurement = measurement
        self._state = state
        self._kinds: dict[tuple[str, str, str, str], tuple[str, bool]] = {}
        self._values: dict[tuple[str, str, str, str], list[float]] = {}
        self._notes: dict[tuple[str, str, str, str], str] = {}

    def add(
        self,
        of: tuple[str, str],
        what: str,
        metric: str,
        unit: str,
        value: float,
        *,
        higher_is_better: bool = False,
        note: str = "",
    ) -> None:
        """Add a round's value. `of` is the system and its promise. A note given in any round is kept."""
        key = (what, metric, *of)
        self._kinds[key] = (unit, higher_is_better)
        self._values.setdefault(key, []).append(value)
        self._notes[key] = note or self._notes.get(key, "")

    def rows(self) -> list[Row]:
        return [
            Row(
                self._measurement,
                what,
                metric,
                self._kinds[what, metric, system, promise][0],
                system,
                promise,
                tuple(values),
                self._kinds[what, metric, system, promise][1],
                self._notes[what, metric, system, promise],
                state=self._state,
            )
            for (what, metric, system, promise), values in self._values.items()
        ]


def read(path: Path) -> Results:
    if not path.exists():
        return Results()
    stored: dict[str, Any] = json.loads(path.read_text())
    rows = [_row(row) for row in stored.pop("rows")]
    variants = [(system, promise, settings, meaning) for system, promise, settings, meaning in stored.pop("variants")]
    return Results(**stored, variants=variants, rows=rows)


def stamped(row: Row, stamp: Stamp) -> Row:
    return replace(row, version=stamp.version, day=stamp.day)


def _row(stored: dict[str, Any]) -> Row:
    runs = tuple(stored.get("runs", ()))
    return Row(**{**stored, "values": tuple(stored["values"]), "runs": runs, "state": State(stored["state"])})


def read_for(machine: dict[str, str], path: Path) -> Results:
    """Return the stored results for new rows to be merged into; empty if they are of another machine.

    Patches of the same version of the kernel are the same machine.
    """
    results = read(path)
    if results.rows and _without_patches(results.machine) != _without_patches(machine):
        print(f"the rows in {path.name} are of another machine and are dropped", file=sys.stderr)
        return Results(machine=machine)
    results.machine = machine
    return results


def _without_patches(machine: dict[str, str]) -> dict[str, str]:
    version = re.match(r"\S+ \d+\.\d+", machine.get("kernel", ""))
    return machine | {"kernel": version[0] if version else ""}


def write(results: Results, path: Path) -> None:
    """Replace the file atomically."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(asdict(results), indent=1) + "\n")
    new.replace(path)
