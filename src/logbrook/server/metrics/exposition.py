"""The page that Prometheus scrapes, in its text format, a piece at a time.

A piece is what fits into a step that nobody notices, so that a scrape of many thousand partitions holds up no request
and never lies in memory as a whole. The numbers of a page are therefore not all of one moment; those of a line are.

The text is written here and not by prometheus_client, which takes five times as long: 50 ms instead of 10 for a
thousand partitions. That library reads what the system knows of the process, and is the judge of this page in tests.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator

from prometheus_client import ProcessCollector, generate_latest

from logbrook.server.metrics.catalogue import all_metrics
from logbrook.server.metrics.scrape import Scrape

_STEP_S = 0.002
_PIECE_CHARACTERS = 64 * 1024


async def page(scrape: Scrape, now_s: Callable[[], float]) -> AsyncGenerator[bytes, None]:
    """Between two pieces everyone else gets a turn."""
    lines: list[str] = []
    size, until_s = 0, now_s() + _STEP_S
    for line in _lines(scrape):
        lines.append(line)
        size += len(line)
        if size >= _PIECE_CHARACTERS or now_s() >= until_s:
            yield _encode(lines)
            lines, size = [], 0
            await asyncio.sleep(0)
            until_s = now_s() + _STEP_S
    yield _encode(lines)


def _lines(scrape: Scrape) -> Iterator[str]:
    for metric in all_metrics():
        yield metric.head
        yield from metric.lines(scrape)
    yield _process()


def _process() -> str:
    """CPU, memory, file descriptors and start time, by the names that all Prometheus clients use."""
    return generate_latest(ProcessCollector(registry=None)).decode()


def _encode(lines: list[str]) -> bytes:
    return "".join(lines).encode("utf-8", "replace")
