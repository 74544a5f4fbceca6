"""How long things took: counts by duration, to within 2 %, whatever the number of them."""

from collections import Counter
from collections.abc import Mapping

# So many numbers share a bucket's leading bits: below 128 us every microsecond has its own.
_LEADING_BITS = 7
_STEPS = 1 << (_LEADING_BITS - 1)
_BARS = "▏▎▍▌▋▊▉█"
_EDGES_MS = [unit * step for unit in (0.01, 0.1, 1, 10, 100, 1_000, 10_000) for step in (1, 2, 5)]


class Latencies:
    """Counts by microseconds. Two are added up with `merge`."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.max_us = 0

    @property
    def total(self) -> int:
        return self.counts.total()

    def add(self, seconds: float, times: int = 1) -> None:
        us = max(0, round(seconds * 1e6))
        self.counts[_bucket(us)] += times
        self.max_us = max(self.max_us, us)

    def merge(self, counts: Mapping[int, int], max_us: int) -> None:
        self.counts.update(counts)
        self.max_us = max(self.max_us, max_us)

    def quantile_ms(self, share: float) -> float | None:
        """What `share` of them did not exceed. None if there are none."""
        left = self.total * share
        for bucket in sorted(self.counts):
            left -= self.counts[bucket]
            if left <= 0:
                return min(_upper_us(bucket), self.max_us) / 1000
        return None

    def histogram(self) -> list[tuple[float, int]]:
        """How many took up to so many ms and longer than the row before, from the first row that has any to the last.

        What is longer than all rows is in the last one, which goes up to the longest of all.
        """
        rows: Counter[float] = Counter()
        for bucket, count in self.counts.items():
            upper_ms = _upper_us(bucket) / 1000
            rows[next((edge for edge in _EDGES_MS if upper_ms <= edge), self.max_us / 1000)] += count
        if not rows:
            return []
        edges = [edge for edge in _EDGES_MS if min(rows) <= edge <= max(rows)]
        return [(edge, rows[edge]) for edge in sorted({*edges, *rows})]


def draw_histogram(rows: list[tuple[float, int]], width: int = 40) -> list[str]:
    """Lines with a bar for each row."""
    total = sum(count for _, count in rows)
    most = max((count for _, count in rows), default=0)
    return [
        f"{f'<= {edge:g} ms':>14}  {_bar(count / most * width):<{width}}  {count / total:7.2%}  {count:,}".rstrip()
        for edge, count in rows
    ]


def _bar(length: float) -> str:
    eighths = round(length * 8)
    return "█" * (eighths // 8) + (_BARS[eighths % 8 - 1] if eighths % 8 else "")


def _bucket(us: int) -> int:
    shift = max(0, us.bit_length() - _LEADING_BITS)
    return shift * _STEPS + (us >> shift)


def _upper_us(bucket: int) -> int:
    """The longest duration in a bucket."""
    if bucket < 2 * _STEPS:
        return bucket
    shift = bucket // _STEPS - 1
    return ((bucket - shift * _STEPS + 1) << shift) - 1
