"""Rows, each with what every round gave, and the file that keeps them.

A row is known by what was measured of which system under which promise; measured again, it takes the place of the old
one, so parts of a run can be repeated. Rows of another machine cannot stand beside it, and go.
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
    # What was not measured, and why.
    skipped: dict[str, str] = field(default_factory=dict)
    # What each way to run a system means: (system, promise, settings, meaning).
    variants: list[tuple[str, str, str, str]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def merge(self, rows: Iterable[Row]) -> None:
        by_key = {row.key: row for row in self.rows}
        by_key.update((row.key, row) for row in rows)
        self.rows = list(by_key.values())

    def of(self, measurement: str) -> list[Row]:
        return [row for row in self.rows if row.measurement == measurement]


class Samples:
    """What rounds give, in the order in which it first came."""

    def __init__(self, measurement: str) -> None:
        self._measurement = measurement
        # False in rounds that only warm up.
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
        """`of` is the system and its promise. A note stays once it was made."""
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
    found: dict[str, Any] = json.loads(path.read_text())
    rows = [Row(**{**row, "values": tuple(row["values"])}) for row in found.pop("rows")]
    variants = [(system, promise, settings, meaning) for system, promise, settings, meaning in found.pop("variants")]
    return Results(**found, variants=variants, rows=rows)


def read_for(machine: dict[str, str], path: Path) -> Results:
    """What new rows may be merged into."""
    results = read(path)
    if results.rows and results.machine != machine:
        print(f"the rows in {path.name} are of another machine: they are dropped", file=sys.stderr)
        return Results(machine=machine)
    results.machine = machine
    return results


def write(results: Results, path: Path) -> None:
    """Through another file, so that an interruption leaves the old one or the new one."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(asdict(results), indent=1) + "\n")
    new.replace(path)
