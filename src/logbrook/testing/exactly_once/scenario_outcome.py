"""The plan of a scenario campaign, and its outcome by scenario."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from logbrook.testing.exactly_once.scenarios import PARALLELISM, SCENARIOS, RowCounts

_SHOWN = 5


class ScenarioPlan(NamedTuple):
    """`restarts_broker`: the broker is killed and started again during every second life of the driver.

    After `seconds_max` there are no more kills, whatever their number.
    """

    kills: int
    seed: int = 0
    names: tuple[str, ...] = tuple(SCENARIOS)
    restarts_broker: bool = False
    parallelism: int = PARALLELISM
    seconds_max: float = inf


@dataclass
class ScenarioOutcome:
    """The kills of a scenario, how many of them hit a commit, and the differences from the oracle."""

    name: str
    kills: int = 0
    restarts: int = 0
    in_transaction: int = 0
    in_table_commit: int = 0
    after_commit: int = 0
    rows: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not self.differences

    def compare(self, target: str, expected: RowCounts, actual: RowCounts) -> None:
        """Add the rows of a table or topic, and their differences from the expected ones."""
        self.rows += actual.total()
        self.differences += _differences(target, expected, actual)

    def __str__(self) -> str:
        verdict = "each exactly once" if self.is_good else "NOT exactly once"
        head = (
            f"{self.name}: {self.kills} driver kills, {self.in_transaction} with an open transaction, "
            f"{self.in_table_commit} with an uncommitted data file, {self.after_commit} right after a commit; "
            f"{self.restarts} broker restarts; {self.rows:,} rows, {verdict}"
        )
        return "\n  ".join([head, *self.differences])


def _differences(target: str, expected: RowCounts, actual: RowCounts) -> Iterator[str]:
    for difference, counts in (("lost", expected - actual), ("surplus", actual - expected)):
        if counts:
            yield f"{target}: {counts.total()} of {expected.total()} rows {difference}: {list(counts)[:_SHOWN]}"
