"""Delays of failed authentications."""

from logbrook.core.failed_attempts import FailedAttempts


def test_the_first_failures_have_the_plain_delay_and_then_it_doubles_up_to_a_bound() -> None:
    attempts = FailedAttempts(0.1)
    delays = [attempts.add("a", 0.0) for _ in range(400)]
    assert delays[:19] == [0.1] * 19
    assert delays[19] == 0.2
    assert delays == sorted(delays)
    assert delays[-1] == 5.0


def test_addresses_do_not_share_their_failures() -> None:
    attempts = FailedAttempts(0.1)
    for _ in range(100):
        attempts.add("attacker", 0.0)
    assert attempts.add("honest", 0.0) == 0.1
    assert attempts.add("attacker", 0.0) > 0.1


def test_failures_are_forgotten_with_time() -> None:
    attempts = FailedAttempts(0.1)
    for _ in range(40):
        attempts.add("a", 0.0)
    assert attempts.add("a", 0.0) == 0.4
    assert attempts.add("a", 10.0) == 0.2
    assert attempts.add("a", 10_000.0) == 0.1


def test_without_a_delay_there_is_none_however_many_fail() -> None:
    attempts = FailedAttempts(0.0)
    assert {attempts.add("a", 0.0) for _ in range(1_000)} == {0.0}


def test_the_number_of_addresses_is_bounded_and_active_ones_are_kept() -> None:
    attempts = FailedAttempts(0.1)
    for number in range(10_000 + 500):
        attempts.add(f"address-{number}", float(number))
        if number % 100 == 0:
            attempts.add("attacker", float(number))
    assert len(attempts) == 10_000
    for _ in range(19):
        attempts.add("attacker", 10_500.0)
    assert attempts.add("attacker", 10_500.0) > 0.1
