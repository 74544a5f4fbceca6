"""When a broker is killed. All of it follows from a seed, except what the machine does meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random


class Moment(StrEnum):
    """What the broker is doing when it is killed."""

    LOADED = "loaded"
    """It has acknowledged some writes since it started, and more are on their way."""
    ANSWERING = "answering"
    """It has just begun to answer: clients come back."""
    STARTING = "starting"
    """It does not answer yet: perhaps it is recovering from the kill before."""
    CREATING = "creating"
    """It was asked for a new topic a moment ago."""
    REBALANCING = "rebalancing"
    """A member of a group is on its way out or in."""
    COMMITTING = "committing"
    """Groups have come back and committed what they read since, and go on to do so."""
    TRANSACTING = "transacting"
    """Transactions were committed since it started, and others are open or about to end."""


_WEIGHTS = {
    Moment.LOADED: 6,
    Moment.ANSWERING: 2,
    Moment.STARTING: 2,
    Moment.CREATING: 2,
    Moment.REBALANCING: 2,
    Moment.COMMITTING: 4,
    Moment.TRANSACTING: 4,
}
_DELAY_S_MAX = {
    Moment.LOADED: 0.03,
    Moment.ANSWERING: 0.1,
    Moment.STARTING: 0.0,
    Moment.CREATING: 0.01,
    Moment.REBALANCING: 0.06,
    Moment.COMMITTING: 0.03,
    Moment.TRANSACTING: 0.06,
}
_ACKNOWLEDGED_MAX = 2_000
_IDEMPOTENT_CHANCE = 0.6
_FIRST_ACKNOWLEDGED = 500
_COMMITTED_MAX = 30
_TRANSACTIONS_MAX = 10


@dataclass(frozen=True)
class Kill:
    moment: Moment
    acknowledged: int
    """How many writes are to be acknowledged before the moment is sought (none, for those that come early)."""
    are_idempotent: bool
    """Whether only those of idempotent producers count, which need longer to come back."""
    committed: int
    """How many offsets are to be committed before it (none, unless the moment is about them)."""
    transactions: int
    """How many transactions are to be committed before it (none, unless the moment is about them)."""
    delay_s: float
    """How long after the moment the kill comes."""
    start_share: float
    """STARTING: after which part of the time that a start takes."""


def moments(rng: Random, kills: int) -> list[Moment]:
    """First of a broker that has something to lose; then each kind of moment, the rest by weight, in any order."""
    found = list(Moment)[1:kills]
    found += rng.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()), k=max(0, kills - 1 - len(found)))
    rng.shuffle(found)
    return [Moment.LOADED, *found]


def schedule(rng: Random, sought: Sequence[Moment]) -> list[Kill]:
    """A kill at each of these moments."""
    first, *others = [_kill(rng, moment) for moment in sought]
    return [replace(first, acknowledged=_FIRST_ACKNOWLEDGED, are_idempotent=True), *others]


def _kill(rng: Random, moment: Moment) -> Kill:
    is_early = moment in (Moment.ANSWERING, Moment.STARTING)
    return Kill(
        moment,
        acknowledged=0 if is_early else int(_ACKNOWLEDGED_MAX ** rng.random()),
        are_idempotent=rng.random() < _IDEMPOTENT_CHANCE,
        committed=rng.randint(1, _COMMITTED_MAX) if moment is Moment.COMMITTING else 0,
        transactions=rng.randint(1, _TRANSACTIONS_MAX) if moment is Moment.TRANSACTING else 0,
        delay_s=rng.uniform(0, _DELAY_S_MAX[moment]),
        start_share=rng.uniform(0.3, 1.1),
    )
