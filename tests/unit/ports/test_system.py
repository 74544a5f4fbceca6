"""The system's clock and random numbers."""

from logbrook.ports import SystemClock, SystemRandom


def test_the_wall_clock_counts_milliseconds_since_1970() -> None:
    in_2020, in_2100 = 1_577_836_800_000, 4_102_444_800_000
    assert in_2020 < SystemClock().now_ms() < in_2100


def test_monotonic_time_does_not_decrease() -> None:
    clock = SystemClock()
    times = [clock.monotonic_s() for _ in range(100)]
    assert times == sorted(times)


def test_a_token_has_its_length_and_is_not_the_one_before() -> None:
    random = SystemRandom()
    assert len(random.token(8)) == 8
    assert random.token(16) != random.token(16)
