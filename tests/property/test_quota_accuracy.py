"""Property: whatever the sizes of its requests, a client that waits as it is told gets its rate, within 5 %."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logbrook.core.quota_meters import QuotaWindows, TokenBucket

WINDOWS = QuotaWindows(11, 1.0)
SIZES = st.lists(st.integers(1, 20_000_000), min_size=1, max_size=20)
REQUEST_S = 0.001
RATES = st.sampled_from([1_000.0, 1e6, 1e8])


def burst_and_rate(sizes: list[int], rate: float, *, waits_first: bool) -> tuple[float, float]:
    """Send until 100 s of bytes beyond the burst are sent. Return the bytes sent and the seconds they took."""
    bucket = TokenBucket(rate, WINDOWS.burst_s, 0.0)
    now_s, sent, number = 0.0, 0.0, 0
    target = rate * (WINDOWS.burst_s + 100) + 2 * max(sizes)
    while sent < target:
        # Small sizes would take long to simulate at a high rate: none is below 20 ms of the rate.
        size = max(sizes[number % len(sizes)], rate * 0.02)
        number += 1
        if waits_first:
            while wait_s := bucket.try_take(size, rate, now_s):
                now_s += wait_s
            sent += size
            now_s += REQUEST_S
        else:
            sent += size
            now_s += max(REQUEST_S, bucket.take(size, rate, now_s))
    return sent, now_s


@pytest.mark.parametrize("waits_first", [False, True], ids=["produce", "fetch"])
@settings(max_examples=40)
@given(sizes=SIZES, rate=RATES)
def test_a_client_gets_its_rate_beyond_the_burst(*, sizes: list[int], rate: float, waits_first: bool) -> None:
    sent, elapsed_s = burst_and_rate(sizes, rate, waits_first=waits_first)
    # A response that is larger than the burst is sent from a full bucket; the debt is paid after it.
    late_s = max(sizes) / rate if waits_first else 0.0
    expected_s = sent / rate - WINDOWS.burst_s
    assert expected_s - late_s - 0.1 <= elapsed_s <= expected_s * 1.05 + WINDOWS.burst_s
    if max(sizes) <= rate * WINDOWS.burst_s:
        assert elapsed_s == pytest.approx(expected_s, rel=0.05)


@given(sizes=SIZES, rate=RATES, gaps=st.lists(st.floats(0, 30), min_size=1, max_size=20))
def test_no_client_is_ahead_of_its_rate_by_more_than_the_burst_and_one_request(
    sizes: list[int], rate: float, gaps: list[float]
) -> None:
    bucket = TokenBucket(rate, WINDOWS.burst_s, 0.0)
    now_s = sent = 0.0
    for number in range(100):
        size = sizes[number % len(sizes)]
        sent += size
        now_s += bucket.take(size, rate, now_s)
        assert sent <= rate * (now_s + WINDOWS.burst_s) * (1 + 1e-9)
        now_s += gaps[number % len(gaps)]
