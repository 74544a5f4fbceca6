"""What `promtool check metrics` would say about the declarations, and what Prometheus' guide to naming does."""

import re

import pytest

from logbrook.server.metrics.catalogue import SECTIONS, all_metrics
from logbrook.server.metrics.declaration import Kind, Metric

# What may stand last, before `_total`, if it is in the name at all.
BASE_UNITS = ("seconds", "bytes")
OTHER_UNITS = re.compile(
    r"_(ms|us|ns|s|sec|millis(econds)?|micros(econds)?|minutes?|hours?|days?|b|kb|mb|gb|[kmg]ib|kilobytes|percent)(_|$)"
)
RESERVED_SUFFIXES = ("_count", "_sum", "_bucket", "_created")
KIND_WORDS = re.compile(r"_(counter|gauge|histogram|summary|metric)(_|$)")


def test_no_name_is_declared_twice() -> None:
    names = [metric.name for metric in all_metrics()]
    assert len(names) == len(set(names)) == sum(map(len, SECTIONS.values()))


@pytest.mark.parametrize("metric", all_metrics(), ids=lambda metric: metric.name)
def test_the_name_follows_the_rules(metric: Metric) -> None:
    name = metric.name
    assert re.fullmatch(r"logbrook(_[a-z][a-z0-9]*)+", name)
    assert (metric.kind is Kind.COUNTER) == name.endswith("_total")
    assert not name.endswith(RESERVED_SUFFIXES)
    assert not KIND_WORDS.search(name)
    assert not OTHER_UNITS.search(name)
    words = name.removesuffix("_total").split("_")
    assert not any(unit in words[:-1] for unit in BASE_UNITS), "the unit comes last"
    assert "total" not in words
    if metric.kind is Kind.HISTOGRAM:
        assert words[-1] == "seconds"


@pytest.mark.parametrize("metric", all_metrics(), ids=lambda metric: metric.name)
def test_the_help_is_a_sentence(metric: Metric) -> None:
    assert re.fullmatch(r"[A-Z0-9][^\n|\\]*\.", metric.help)
    assert len(metric.help) <= 120


@pytest.mark.parametrize("metric", all_metrics(), ids=lambda metric: metric.name)
def test_labels_are_no_reserved_words(metric: Metric) -> None:
    for label in metric.labels:
        assert re.fullmatch(r"[a-z]+", label)
        # Prometheus adds job and instance itself.
        assert label not in {"le", "quantile", "job", "instance"}
        assert label not in metric.name.removeprefix("logbrook_").split("_") or label in {"topic", "partition", "group"}
