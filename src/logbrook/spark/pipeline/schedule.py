"""The times at which a scheduled pipeline runs: every so often, or by a cron line.

A cron line has the five usual fields, in UTC. Times of an interval are multiples of it since midnight 1970-01-01 UTC,
so that "1h" means every full hour whenever the pipeline was started. A run that takes longer than the interval skips
the times that pass meanwhile.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from logbrook.spark.errors import OptionError
from logbrook.spark.read_options import read_duration_ms

_CRON_FIELDS = 5
_INTERVAL_MS_MIN = 1_000


class ScheduleError(ValueError):
    """Describes a valid schedule."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """`interval_ms` is None for a cron line."""

    text: str
    interval_ms: int | None

    def next_s(self, now_s: float) -> float:
        """Return the first time after `now_s`, both in seconds since 1970."""
        if self.interval_ms is not None:
            interval_s = self.interval_ms / 1000
            return (now_s // interval_s + 1) * interval_s
        return next(CronSim(self.text, datetime.fromtimestamp(now_s, UTC))).timestamp()


def parse_schedule(text: str) -> Schedule:
    """Parse "15 minutes" or "0 3 * * *". Raises ScheduleError."""
    must_be = 'a duration such as "15 minutes", or a cron line in UTC such as "0 3 * * *"'
    try:
        if len(text.split()) == _CRON_FIELDS:
            CronSim(text, datetime.fromtimestamp(0, UTC))
            return Schedule(text, None)
        interval_ms = read_duration_ms("schedule", text)
    except (CronSimError, OptionError):
        raise ScheduleError(must_be) from None
    if interval_ms < _INTERVAL_MS_MIN:
        raise ScheduleError("at least a second; a trigger is for shorter intervals")
    return Schedule(text, interval_ms)


def run_on_schedule(
    schedule: Schedule, run: Callable[[], None], now_s: Callable[[], float], wait_until: Callable[[float], bool]
) -> None:
    """Call `run` now and at each time of the schedule, until `wait_until` returns False instead of waiting."""
    run()
    while wait_until(schedule.next_s(now_s())):
        run()
