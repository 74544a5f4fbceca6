"""The rate limit of audit events."""

from logbrook.server.security.audit_limits import AuditLimits
from logbrook.testing.clock import FakeClock


def test_a_key_is_admitted_up_to_its_number_per_interval_and_the_rest_is_counted() -> None:
    clock = FakeClock()
    limits = AuditLimits(clock, per_key=3, interval_s=60)
    assert [limits.admit("a") for _ in range(5)] == [0, 0, 0, None, None]
    assert limits.admit("b") == 0
    clock.advance(60_000)
    assert [limits.admit("a"), limits.admit("a")] == [2, 0]


def test_all_keys_together_are_limited_per_second() -> None:
    clock = FakeClock()
    limits = AuditLimits(clock, per_second=5)
    assert [limits.admit(str(number)) for number in range(7)].count(None) == 2
    clock.advance(1_000)
    assert limits.admit("another") == 0


def test_suppressed_events_are_summarized_after_the_interval() -> None:
    clock = FakeClock()
    limits = AuditLimits(clock, per_key=1, interval_s=60)
    for _ in range(4):
        limits.admit("a")
    assert list(limits.summaries()) == []
    clock.advance(60_000)
    assert list(limits.summaries()) == [("a", 3)]
    assert list(limits.summaries(is_final=True)) == []


def test_the_number_of_keys_is_bounded_and_nothing_is_lost_from_the_count() -> None:
    limits = AuditLimits(FakeClock(), per_key=1, per_second=1_000_000, keys_max=10)
    for number in range(1_000):
        limits.admit(f"key {number}")
        limits.admit(f"key {number}")
    assert sum(count for _, count in limits.summaries(is_final=True)) == 1_000
