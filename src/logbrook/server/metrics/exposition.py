"""All metrics, and the page that Prometheus scrapes, in its text format.

A page is produced in pieces, with other work in between, so that a scrape of thousands of partitions delays no request
and is never in memory as a whole. The values of a page are therefore not all of one instant; those of a line are.

The text is written here and not by prometheus_client, which takes five times as long: 50 ms instead of 10 for a
thousand partitions. That library provides the process metrics, and its parser checks the page in tests.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator

from prometheus_client import ProcessCollector, generate_latest

from logbrook.server.metrics.audit import AUDIT_EVENTS
from logbrook.server.metrics.broker import BROKER, CONNECTIONS, QUOTAS, REQUESTS, TRAFFIC
from logbrook.server.metrics.cluster import CLUSTER
from logbrook.server.metrics.coordinators import GROUPS, TRANSACTIONS
from logbrook.server.metrics.declaration import Metric
from logbrook.server.metrics.partitions import PARTITIONS
from logbrook.server.metrics.scrape import Scrape
from logbrook.server.metrics.storage import CLEANER, STORAGE, WAL

# By the section of docs/METRICS.md, in the order of the page.
SECTIONS: dict[str, tuple[Metric, ...]] = {
    "The broker": BROKER,
    "Connections": CONNECTIONS,
    "Requests": REQUESTS,
    "Quotas": QUOTAS,
    "The audit log": AUDIT_EVENTS,
    "Topics": TRAFFIC,
    "Partitions": PARTITIONS,
    "Consumer groups": GROUPS,
    "Transactions": TRANSACTIONS,
    "Storage": STORAGE,
    "The write-ahead log": WAL,
    "The log cleaner": CLEANER,
    "The cluster": CLUSTER,
}

_STEP_S = 0.002
_PIECE_CHARACTERS = 64 * 1024


def all_metrics() -> list[Metric]:
    return [metric for section in SECTIONS.values() for metric in section]


async def page(scrape: Scrape, now_s: Callable[[], float]) -> AsyncGenerator[bytes, None]:
    """Yield the page in pieces of whole lines. The event loop runs other work between two pieces."""
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
    # CPU, memory, file descriptors and start time, with the names that all Prometheus clients use.
    yield generate_latest(ProcessCollector(registry=None)).decode()


def _encode(lines: list[str]) -> bytes:
    return "".join(lines).encode("utf-8", "replace")
