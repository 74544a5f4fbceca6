"""The command line of the exactly-once campaigns: `python -m logbrook.testing.exactly_once`.

`tests.spark.exactly_once` runs them against Apache Kafka, too.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from math import inf

from logbrook.spark.errors import JavaError
from logbrook.testing.exactly_once.campaign import ExactlyOnceCampaign, ExactlyOncePlan, StuckError
from logbrook.testing.exactly_once.campaign_broker import BrokerFactory, RestartableBroker
from logbrook.testing.exactly_once.scenario_campaign import ScenarioCampaign
from logbrook.testing.exactly_once.scenario_outcome import ScenarioPlan
from logbrook.testing.exactly_once.scenarios import SCENARIOS

LOGBROOK = "logbrook"
_COPY = "copy"


def main(others: Mapping[str, BrokerFactory] | None = None, arguments: Sequence[str] | None = None) -> int:
    """Run the campaigns against Logbrook and `others`. Returns the exit code: 1 if a row was lost or doubled."""
    brokers: dict[str, BrokerFactory] = {LOGBROOK: RestartableBroker} | dict(others or {})
    options = _parser(list(brokers)).parse_args(arguments)
    is_good = True
    try:
        for name in options.broker or brokers:
            _print(f"against {name}:")
            is_good &= _kill(brokers[name], options)
    except JavaError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0 if is_good else 1


def _parser(brokers: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m logbrook.testing.exactly_once",
        description="Kill the drivers and workers of Spark jobs, and their brokers, and check every output.",
    )
    parser.add_argument("--kills", type=int, default=20, help="kills of each scenario (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the kill schedule (%(default)s)")
    names = [_COPY, *SCENARIOS]
    parser.add_argument("--only", choices=names, action="append", help="run this scenario; may be repeated")
    parser.add_argument("--minutes", type=float, default=inf, help="no more kills of the scenarios after this time")
    parser.add_argument("--broker", choices=brokers, action="append", help="run against this broker; may be repeated")
    return parser


class _Counter:
    """Prints each kill with its number."""

    def __init__(self, kills: int) -> None:
        self._kills = kills
        self._done = 0

    def __call__(self, text: str) -> None:
        self._done += 1
        _print(f"{self._done} of {self._kills} kills: {text}")


def _kill(broker: BrokerFactory, options: argparse.Namespace) -> bool:
    """Run the chosen campaigns against a broker. Returns False if one of them fails."""
    chosen = options.only or [_COPY, *SCENARIOS]
    names = tuple(name for name in SCENARIOS if name in chosen)
    is_good = True
    try:
        if _COPY in chosen:
            is_good &= _kill_copy(broker, options.kills, options.seed)
        if names:
            seconds_max = options.minutes * 60
            plan = ScenarioPlan(options.kills, options.seed, names, restarts_broker=True, seconds_max=seconds_max)
            is_good &= _kill_scenarios(broker, plan)
    except StuckError as error:
        _print(f"FAILED: {error}")
        return False
    return is_good


def _kill_copy(broker: BrokerFactory, kills: int, seed: int) -> bool:
    with ExactlyOnceCampaign(ExactlyOncePlan(kills, seed), _Counter(kills), broker) as campaign:
        campaign.kill_all()
        campaign.run_driver(is_killed=False)
        outcome = campaign.compare()
    _print(f"{_COPY}: {outcome}")
    return outcome.is_good


def _kill_scenarios(broker: BrokerFactory, plan: ScenarioPlan) -> bool:
    with ScenarioCampaign(plan, _Counter(plan.kills), broker) as campaign:
        campaign.kill_all()
        campaign.finish()
        outcomes = campaign.compare()
    for outcome in outcomes:
        _print(str(outcome))
    for reason, count in campaign.failures.items():
        _print(f"{count} drivers ended by themselves and were started again: {reason}")
    return all(outcome.is_good for outcome in outcomes)


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
