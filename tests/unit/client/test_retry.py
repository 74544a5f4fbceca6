"""The retry policy, with a clock and random numbers that the test sets."""

from collections.abc import Callable

import pytest

from logbrook.client import BrokerError, ClientError, ConnectFailedError, RetryPolicy, TimedOutError
from logbrook.client.retry import FailedTry, Retries
from logbrook.protocol.error_codes import ErrorCode

NETWORK = TimedOutError("broker", 9092, 1.0)
CONNECT = ConnectFailedError("broker", 9092, "refused")
FATAL = BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, "creating topic a b")


class Clock:
    """A clock that moves when `wait` is called."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def wait(self, until_s: float) -> None:
        self.waits.append(until_s - self.now_s)
        self.now_s = until_s


def failing(*errors: ClientError) -> Callable[[], str]:
    """An operation that raises these errors and then succeeds."""
    remaining = list(errors)

    def operation() -> str:
        if remaining:
            raise remaining.pop(0)
        return "done"

    return operation


def test_waits_double_up_to_their_maximum() -> None:
    clock = Clock()
    policy = RetryPolicy(jitter=0.0, clock=clock)
    assert policy.run(failing(*[NETWORK] * 6), wait=clock.wait) == "done"
    assert clock.waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


@pytest.mark.parametrize(("random", "expected"), [(0.0, 0.08), (0.5, 0.1), (1.0, 0.12)])
def test_jitter_varies_a_wait_by_its_share(random: float, expected: float) -> None:
    assert RetryPolicy(jitter=0.2, random=lambda: random).delay_s(1) == pytest.approx(expected)


def test_jitter_does_not_exceed_the_maximum() -> None:
    assert RetryPolicy(jitter=0.2, random=lambda: 1.0).delay_s(20) == 1.0


@pytest.mark.parametrize("code", [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNSTABLE_OFFSET_COMMIT])
def test_a_transaction_that_is_being_completed_is_waited_for_a_tenth_of_the_time(code: ErrorCode) -> None:
    assert RetryPolicy(jitter=0.0).delay_s(3, BrokerError(code, "x")) == pytest.approx(0.04)


def test_the_last_error_is_raised_when_the_next_try_would_be_after_the_timeout() -> None:
    clock = Clock()
    policy = RetryPolicy(timeout_s=0.5, jitter=0.0, clock=clock)
    last = TimedOutError("last", 1, 1.0)
    with pytest.raises(TimedOutError) as raised:
        policy.run(failing(NETWORK, NETWORK, last), wait=clock.wait)
    assert raised.value is last
    assert clock.waits == pytest.approx([0.1, 0.2])


def test_the_number_of_tries_is_limited() -> None:
    clock = Clock()
    policy = RetryPolicy(tries_max=3, backoff_s=0.2, backoff_s_max=0.2, jitter=0.0, clock=clock)
    assert policy.run(failing(NETWORK, NETWORK), wait=clock.wait) == "done"
    with pytest.raises(TimedOutError):
        policy.run(failing(NETWORK, NETWORK, NETWORK), wait=clock.wait)
    assert clock.waits == pytest.approx([0.2] * 4)


def test_failures_to_connect_have_a_limit_of_their_own() -> None:
    clock = Clock()
    policy = RetryPolicy(tries_max=10, connect_tries_max=2, clock=clock)
    assert policy.run(failing(CONNECT, NETWORK, NETWORK), wait=clock.wait) == "done"
    with pytest.raises(ConnectFailedError):
        policy.run(failing(CONNECT, NETWORK, CONNECT), wait=clock.wait)


def test_errors_that_are_not_retriable_or_final_are_raised_at_once() -> None:
    unknown = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "looking up topic t")
    clock = Clock()
    for policy, error in [
        (RetryPolicy(clock=clock), FATAL),
        (RetryPolicy(clock=clock, final=frozenset({unknown.code})), unknown),
        (RetryPolicy(clock=clock, retriable=lambda error: error is unknown), NETWORK),
    ]:
        with pytest.raises(ClientError) as raised:
            policy.run(failing(error), wait=clock.wait)
        assert raised.value is error
    assert RetryPolicy(clock=clock).run(failing(unknown), wait=clock.wait) == "done"
    assert len(clock.waits) == 1


def test_the_hook_is_called_before_each_wait() -> None:
    clock = Clock()
    tries: list[FailedTry] = []
    policy = RetryPolicy(jitter=0.0, clock=clock, on_retry=tries.append)
    policy.run(failing(NETWORK, CONNECT), wait=clock.wait)
    assert [(failed.error, failed.failures) for failed in tries] == [(NETWORK, 1), (CONNECT, 2)]
    assert [failed.wait_s for failed in tries] == pytest.approx(clock.waits)


def test_the_default_wait_is_a_sleep() -> None:
    assert RetryPolicy(backoff_s=0.001, backoff_s_max=0.001).run(failing(NETWORK)) == "done"


def test_the_time_limit_of_retries_counts_from_when_they_are_made() -> None:
    clock = Clock()
    policy = RetryPolicy(timeout_s=1.0, jitter=0.0, clock=clock)
    clock.now_s += 50
    retries = Retries(policy)
    assert retries.next_try_at_s(NETWORK) == pytest.approx(150.1)
    clock.now_s += 2
    with pytest.raises(TimedOutError):
        retries.next_try_at_s(NETWORK)
