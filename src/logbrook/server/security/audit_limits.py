"""Rate limit of audit events that clients can cause at will, so that a client cannot fill the disk with them.

Events of one key (such as: denied, this principal, this operation, this type of resource) are admitted up to a number
per interval, and all keys together up to a number per second. Suppressed events are counted; the next admitted event of
the key carries the number, or `summaries` has it after the interval.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from logbrook.ports import Clock


@dataclass(slots=True)
class _Window:
    """The events of one key in its current interval."""

    begin_s: float
    admitted: int = 0
    suppressed: int = 0


class AuditLimits:
    """One per broker, on the event loop. It keeps the newest `keys_max` keys."""

    def __init__(
        self,
        clock: Clock,
        *,
        per_key: int = 10,
        interval_s: float = 60.0,
        per_second: int = 100,
        keys_max: int = 1_000,
    ) -> None:
        self._clock = clock
        self._per_key = per_key
        self._interval_s = interval_s
        self._per_second = per_second
        self._keys_max = keys_max
        self._windows: OrderedDict[str, _Window] = OrderedDict()
        # Suppressed events of keys that are no longer kept.
        self._forgotten = 0
        self._second = -1
        self._admitted_this_second = 0

    def admit(self, key: str) -> int | None:
        """Return the number of events of this key that were suppressed before this one; None to suppress it, too."""
        now_s = self._clock.monotonic_s()
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(now_s)
            if len(self._windows) > self._keys_max:
                self._forgotten += self._windows.popitem(last=False)[1].suppressed
        elif now_s - window.begin_s >= self._interval_s:
            window.begin_s, window.admitted = now_s, 0
            self._windows.move_to_end(key)
        if window.admitted >= self._per_key or not self._has_room(int(now_s)):
            window.suppressed += 1
            return None
        window.admitted += 1
        self._admitted_this_second += 1
        suppressed, window.suppressed = window.suppressed, 0
        return suppressed

    def summaries(self, *, is_final: bool = False) -> Iterator[tuple[str, int]]:
        """Yield key and number of the suppressed events whose interval is over, or of all; the key "" for others."""
        now_s = self._clock.monotonic_s()
        # Ordered by the begin of the interval.
        while self._windows:
            key, window = next(iter(self._windows.items()))
            if not is_final and now_s - window.begin_s < self._interval_s:
                break
            del self._windows[key]
            if window.suppressed:
                yield key, window.suppressed
        if self._forgotten:
            forgotten, self._forgotten = self._forgotten, 0
            yield "", forgotten

    def _has_room(self, second: int) -> bool:
        if second != self._second:
            self._second, self._admitted_this_second = second, 0
        return self._admitted_this_second < self._per_second
