"""Formatting of the metrics page, and that a scrape yields to other tasks."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from logbrook.server.metrics.declaration import latencies
from logbrook.server.metrics.exposition import page
from logbrook.server.metrics.scrape import Scrape, label_text
from logbrook.storage.probe import LATENCY_BOUNDS_S, Histogram
from tests.unit.server.http_kit import Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as served:
        served.create_topic("orders", 20)
        yield served


async def read(served: Served, now_s: Iterator[float]) -> tuple[list[bytes], int]:
    """Return the pieces, and how often other tasks ran in between."""
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    background = asyncio.get_running_loop().create_task(take_turns())
    pieces = [piece async for piece in page(Scrape(served.broker, 0.0, 0.0), lambda: next(now_s))]
    background.cancel()
    return pieces, turns


def test_a_scrape_that_takes_long_lets_others_have_their_turn(served: Served) -> None:
    pieces, turns = served.call(read(served, count(0.0, 1.0)))
    assert len(pieces) > 100
    assert turns >= len(pieces) - 1
    names = [metric.name for metric in text_string_to_metric_families(b"".join(pieces).decode())]
    assert len(names) == len(set(names))


def test_a_scrape_that_is_quick_is_one_piece(served: Served) -> None:
    pieces, _ = served.call(read(served, iter(lambda: 0.0, None)))
    assert len(pieces) == 1


def test_a_page_does_not_lie_in_memory_as_a_whole(served: Served) -> None:
    served.create_topic("many", 200)
    pieces, _ = served.call(read(served, iter(lambda: 0.0, None)))
    assert len(pieces) > 1
    assert max(map(len, pieces)) < 70_000


def test_topics_may_be_created_and_deleted_during_a_scrape(served: Served) -> None:
    async def scrape_and_change() -> bytes:
        topics, probe = served.broker.services.topics, served.broker.services.probe
        received = b""
        now_s = count(0.0, 1.0)
        async for piece in page(Scrape(served.broker, 0.0, 0.0), lambda: next(now_s)):
            received += piece
            if b"partition_segments" in piece and "new" not in topics.metadata.topics:
                await topics.create("new", 3, {})
                await topics.delete("orders")
            probe.requests[f"Api{len(received)}", 0] += 1
            probe.topics[f"topic{len(received)}"].bytes_in += 1
        return received

    families = {metric.name for metric in text_string_to_metric_families(served.call(scrape_and_change()).decode())}
    assert "logbrook_cleaner_compactions" in families


def test_a_value_on_a_bound_is_counted_below_it() -> None:
    histogram = Histogram()
    for value in (0.0, LATENCY_BOUNDS_S[0], LATENCY_BOUNDS_S[0] * 1.01, LATENCY_BOUNDS_S[-1], 1e9):
        histogram.add(value)
    assert histogram.counts[:2] == [2, 1]
    assert histogram.counts[-2:] == [1, 1]
    assert histogram.sum == pytest.approx(1e9 + LATENCY_BOUNDS_S[-1], abs=0.01)


def test_the_buckets_of_a_histogram_add_up() -> None:
    histogram = Histogram()
    for value in (0.0002, 0.03, 0.03, 99.0):
        histogram.add(value)
    metric = latencies("x_seconds", "Help.", ("api",), lambda _: [(("Fetch",), histogram)])
    text = metric.head + "".join(metric.lines(Scrape.__new__(Scrape)))
    (family,) = text_string_to_metric_families(text)
    buckets = {
        float(sample.labels["le"]): sample.value for sample in family.samples if sample.name == "x_seconds_bucket"
    }
    assert list(buckets) == [*LATENCY_BOUNDS_S, float("inf")]
    assert (buckets[0.0001], buckets[0.00025], buckets[0.025], buckets[0.05], buckets[10.0]) == (0, 1, 1, 3, 3)
    assert buckets[float("inf")] == 4
    assert {sample.name: sample.value for sample in family.samples if "le" not in sample.labels} == {
        "x_seconds_count": 4,
        "x_seconds_sum": pytest.approx(99.0602),
    }


def test_label_values_are_escaped() -> None:
    assert label_text(("a", "b"), ('x"y', "1\n2\\3")) == r'{a="x\"y",b="1\n2\\3"}'
    assert label_text((), ()) == ""


def test_a_broker_that_is_not_scraped_does_not_load_the_client_library() -> None:
    code = "import sys, logbrook.server.run, logbrook.server.http; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
