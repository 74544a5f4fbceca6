"""The times of a pipeline's schedule."""

from datetime import UTC, datetime

import pytest

from logbrook.spark.pipeline.schedule import parse_schedule, run_on_schedule

NOW = datetime(2026, 3, 31, 23, 59, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1h", datetime(2026, 4, 1, tzinfo=UTC)),
        ("1 minute", datetime(2026, 4, 1, tzinfo=UTC)),
        ("10s", datetime(2026, 3, 31, 23, 59, 40, tzinfo=UTC)),
        ("0 3 * * *", datetime(2026, 4, 1, 3, tzinfo=UTC)),
        ("30 4 1 * *", datetime(2026, 4, 1, 4, 30, tzinfo=UTC)),
        ("0 0 29 2 *", datetime(2028, 2, 29, tzinfo=UTC)),
    ],
)
def test_the_next_time_follows_now(text: str, expected: datetime) -> None:
    schedule = parse_schedule(text)
    assert schedule.next_s(NOW.timestamp()) == expected.timestamp()
    assert schedule.next_s(expected.timestamp()) > expected.timestamp()


def test_a_run_that_takes_long_skips_the_times_that_passed() -> None:
    clock = [NOW.timestamp()]
    waits: list[float] = []

    def run() -> None:
        clock[0] += 90

    def wait_until(time_s: float) -> bool:
        waits.append(time_s - NOW.timestamp())
        clock[0] = time_s
        return len(waits) < 3

    run_on_schedule(parse_schedule("1 minute"), run, lambda: clock[0], wait_until)
    # Started at half a minute: each run ends in the second minute after its time.
    assert waits == [150, 270, 390]
