"""Failed authentications per address: how long the next failure of an address is delayed.

A failure is answered after a delay, so that passwords cannot be tried quickly. The delay doubles with every
`_FREE_FAILURES` failures of the same address, and halves again with time. Successes are never delayed: clients behind
the address of an attacker can still log in.
"""

from collections import OrderedDict

# Failures of an address at the plain delay, as after a change of a password that many clients share.
_FREE_FAILURES = 20
_DELAY_S_MAX = 5.0
# The number of failures that count for an address halves in this time.
_HALF_LIFE_S = 10.0
_ADDRESSES_MAX = 10_000


class FailedAttempts:
    """Deterministic: time is an argument, in seconds of a monotonic clock."""

    def __init__(self, delay_s: float) -> None:
        """`delay_s` is the least delay of a failure."""
        self._delay_s = delay_s
        # The failures that count, and the time for which they were computed. The oldest first.
        self._failures: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failures)

    def add(self, address: str, now_s: float) -> float:
        """Count a failure, and return the delay of its response in seconds."""
        count, at_s = self._failures.pop(address, (0.0, now_s))
        count = count * 0.5 ** ((now_s - at_s) / _HALF_LIFE_S) + 1
        self._failures[address] = count, now_s
        if len(self._failures) > _ADDRESSES_MAX:
            self._failures.popitem(last=False)
        doublings = min(int(count / _FREE_FAILURES), 16)
        return min(self._delay_s * (1 << doublings), max(_DELAY_S_MAX, self._delay_s))
