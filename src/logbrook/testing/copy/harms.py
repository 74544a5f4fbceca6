"""What is done to the broker and the copiers, and when. All of it follows from a seed, but for the machine's pace."""

from dataclasses import dataclass
from enum import StrEnum
from random import Random


class Harm(StrEnum):
    BROKER_KILLED = "broker killed"
    """It starts again at once."""
    COPIER_KILLED = "copier killed"
    """It starts again after a while; until then its last transaction may be open, and another takes its partitions."""
    COPIER_HELD_UP = "copier held up"
    """For longer than its group waits for it: it comes back with records that are another's to copy."""


_FIRST_SHARE = 0.03
_LAST_SHARE = 0.9
_DELAY_S_MAX = 0.15
_INSIDE_CHANCE = 0.6
_AWAY_S_MAX = 2.0
_HELD_UP_S = (1.7, 2.5)


@dataclass(frozen=True)
class Harming:
    harm: Harm
    copied_share: float
    """How much is to be copied before it."""
    delay_s: float
    """How long after that it comes."""
    copier: int
    """Which one, counted without end."""
    is_inside: bool
    """Whether it comes when the copier has written the records of a transaction and not yet committed it."""
    away_s: float
    """How long the copier is away or held up."""


def schedule(rng: Random, harms: dict[Harm, int]) -> list[Harming]:
    """As many of each as are asked for, in any order, spread over the run."""
    kinds = [harm for harm, times in harms.items() for _ in range(times)]
    rng.shuffle(kinds)
    width = (_LAST_SHARE - _FIRST_SHARE) / max(1, len(kinds))
    return [
        Harming(
            harm,
            copied_share=_FIRST_SHARE + width * (number + rng.random()),
            delay_s=rng.uniform(0, _DELAY_S_MAX),
            copier=rng.randrange(1 << 16),
            is_inside=rng.random() < _INSIDE_CHANCE,
            away_s=rng.uniform(*_HELD_UP_S) if harm is Harm.COPIER_HELD_UP else rng.uniform(0, _AWAY_S_MAX),
        )
        for number, harm in enumerate(kinds)
    ]
