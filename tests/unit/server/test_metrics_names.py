"""Metric declarations follow the rules of `promtool check metrics` and of Prometheus' naming guide."""

import re

from logbrook.server.metrics.declaration import MetricKind
from logbrook.server.metrics.exposition import SECTIONS, all_metrics

# Units that may only stand last in a name, before `_total`.
BASE_UNITS = ("seconds", "bytes")
OTHER_UNITS = re.compile(
    r"_(ms|us|ns|s|sec|millis(econds)?|micros(econds)?|minutes?|hours?|days?|b|kb|mb|gb|[kmg]ib|kilobytes|percent)(_|$)"
)
RESERVED_SUFFIXES = ("_count", "_sum", "_bucket", "_created")
KIND_WORDS = re.compile(r"_(counter|gauge|histogram|summary|metric)(_|$)")


def test_no_name_is_declared_twice() -> None:
    names = [metric.name for metric in all_metrics()]
    assert len(names) == len(set(names)) == sum(map(len, SECTIONS.values()))


def test_the_name_follows_the_rules() -> None:
    for metric in all_metrics():
        name = metric.name
        assert re.fullmatch(r"logbrook(_[a-z][a-z0-9]*)+", name), metric.name
        assert (metric.kind is MetricKind.COUNTER) == name.endswith("_total"), metric.name
        assert not name.endswith(RESERVED_SUFFIXES), metric.name
        assert not KIND_WORDS.search(name), metric.name
        assert not OTHER_UNITS.search(name), metric.name
        words = name.removesuffix("_total").split("_")
        assert not any(unit in words[:-1] for unit in BASE_UNITS), f"{metric.name}: the unit comes last"
        assert "total" not in words, metric.name
        if metric.kind is MetricKind.HISTOGRAM:
            assert words[-1] == "seconds", metric.name


def test_the_help_is_a_sentence() -> None:
    for metric in all_metrics():
        assert re.fullmatch(r"[A-Z0-9][^\n|\\]*\.", metric.help), metric.name
        assert len(metric.help) <= 120, metric.name


def test_labels_are_no_reserved_words() -> None:
    for metric in all_metrics():
        for label in metric.labels:
            assert re.fullmatch(r"[a-z]+", label), metric.name
            # Prometheus adds job and instance itself.
            assert label not in {"le", "quantile", "job", "instance"}, metric.name
            words = metric.name.removeprefix("logbrook_").split("_")
            assert label not in words or label in {"topic", "partition", "group"}, metric.name
