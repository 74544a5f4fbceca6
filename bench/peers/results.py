"""Result rows, with the value of every round, and the file that stores them.

A row is identified by measurement, case (`what`), metric, system and promise. A new measurement replaces its row, so
parts of a run can be repeated. Rows of different machines are not comparable: those of another machine are dropped.
"""

import json
import statistics
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "peers.json"


@dataclass(frozen=True)
class Row:
    measurement: str
    what: str
    metric: str
    unit: str
    system: str
    promise: str
    values: tuple[float, ...]
    higher_is_better: bool = False
    note: str = ""

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

    def of(self, measurement: str) -> list[Row]:
        return [row for row in self.rows if row.measurement == measurement]


class Samples:
    """Collects the values of rounds into rows, in the order in which they were first added."""

    def __init__(self, measurement: str) -> None:
        self._measurement = measurement
        # False during warm-up rounds.
        self.counts = True
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
        if not self.counts:
            return
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
            )
            for (what, metric, system, promise), values in self._values.items()
        ]


def read(path: Path) -> Results:
    if not path.exists():
        return Results()
    stored: dict[str, Any] = json.loads(path.read_text())
    rows = [Row(**{**row, "values": tuple(row["values"])}) for row in stored.pop("rows")]
    variants = [(system, promise, settings, meaning) for system, promise, settings, meaning in stored.pop("variants")]
    return Results(**stored, variants=variants, rows=rows)


def read_for(machine: dict[str, str], path: Path) -> Results:
    """Return the stored results for new rows to be merged into; empty if they are of another machine."""
    results = read(path)
    if results.rows and results.machine != machine:
        print(f"the rows in {path.name} are of another machine and are dropped", file=sys.stderr)
        return Results(machine=machine)
    results.machine = machine
    return results


def write(results: Results, path: Path) -> None:
    """Replace the file atomically."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(asdict(results), indent=1) + "\n")
    new.replace(path)
