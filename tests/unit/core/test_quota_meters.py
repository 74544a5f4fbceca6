"""Token buckets: burst, debt, throttle times, and the bound of their number."""

import pytest

from logbrook.core.quota_meters import QuotaMeters, QuotaWindows, TokenBucket


def test_the_burst_is_that_of_all_windows_but_the_current_one() -> None:
    assert QuotaWindows(11, 1.0).burst_s == 10.0
    assert QuotaWindows(1, 1.0).burst_s == 1.0


def test_a_client_waits_until_its_debt_is_paid() -> None:
    bucket = TokenBucket(100.0, 10.0, 0.0)
    assert bucket.take(1_000, 100.0, 0.0) == 0.0
    assert bucket.take(50, 100.0, 0.0) == pytest.approx(0.5)
    assert bucket.debt_s(100.0, 0.25) == pytest.approx(0.25)
    assert bucket.take(0, 100.0, 0.5) == 0.0
    # Nine seconds later the bucket is full again, and not fuller after an hour.
    assert bucket.take(1_000, 100.0, 3_600.0) == 0.0
    assert bucket.take(1, 100.0, 3_600.0) == pytest.approx(0.01)


def test_a_clock_that_goes_back_adds_no_tokens() -> None:
    bucket = TokenBucket(10.0, 1.0, 5.0)
    bucket.take(10, 10.0, 5.0)
    assert bucket.take(1, 10.0, 4.0) == pytest.approx(0.1)


def test_an_amount_that_does_not_fit_is_not_taken() -> None:
    bucket = TokenBucket(100.0, 1.0, 0.0)
    assert bucket.try_take(80, 100.0, 0.0) == 0.0
    wait_s = bucket.try_take(80, 100.0, 0.0)
    assert wait_s == pytest.approx(0.6)
    assert bucket.try_take(20, 100.0, 0.0) == 0.0
    assert bucket.try_take(80, 100.0, 0.8) == 0.0


def test_more_than_the_burst_is_taken_from_a_full_bucket() -> None:
    bucket = TokenBucket(100.0, 1.0, 0.0)
    assert bucket.try_take(300, 100.0, 0.0) == 0.0
    assert bucket.try_take(300, 100.0, 0.0) == pytest.approx(3.0)
    assert bucket.try_take(300, 100.0, 3.0) == 0.0


def test_a_lower_quota_takes_effect_at_once() -> None:
    bucket = TokenBucket(1_000.0, 1.0, 0.0)
    assert bucket.take(20, 10.0, 0.0) == pytest.approx(1.0)


def test_owners_have_buckets_of_their_own() -> None:
    meters = QuotaMeters(1.0)
    assert meters.bucket("a", 10.0, 0.0).take(20, 10.0, 0.0) == pytest.approx(1.0)
    assert meters.bucket("b", 10.0, 0.0).take(10, 10.0, 0.0) == 0.0
    assert meters.bucket("a", 10.0, 0.0).debt_s(10.0, 0.0) == pytest.approx(1.0)


def test_idle_buckets_are_dropped_and_debts_are_kept() -> None:
    meters = QuotaMeters(1.0)
    meters.bucket("debtor", 10.0, 0.0).take(10_010, 10.0, 0.0)
    for number in range(1_000):
        # A new client every 0.1 s, each of which needs one second to fill its bucket again.
        now_s = number / 10
        meters.bucket(number, 10.0, now_s).take(10, 10.0, now_s)
        assert len(meters) <= 24
    assert meters.bucket("debtor", 10.0, 100.0).debt_s(10.0, 100.0) == pytest.approx(900.0)


def test_the_number_of_buckets_is_bounded() -> None:
    meters = QuotaMeters(1.0, buckets_max=10)
    for number in range(100):
        meters.bucket(number, 10.0, 0.0).take(100, 10.0, 0.0)
    assert len(meters) == 10
