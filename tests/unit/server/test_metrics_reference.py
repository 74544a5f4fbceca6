"""docs/METRICS.md is generated from the declarations."""

import re
from pathlib import Path

from logbrook.server.metrics.exposition import all_metrics
from logbrook.server.metrics.reference import metrics_reference

DOCUMENT = Path(__file__).parents[3] / "docs" / "METRICS.md"


def test_the_document_is_fresh() -> None:
    command = "python -m logbrook.server.metrics.reference > docs/METRICS.md"
    assert DOCUMENT.read_text() == metrics_reference(), f"run: {command}"


def test_every_metric_has_its_row() -> None:
    for metric in all_metrics():
        assert metrics_reference().count(f"\n| `{metric.name}` | {metric.kind} |") == 1, metric.name


def test_recommended_alerts_are_about_metrics_that_exist() -> None:
    alerts = metrics_reference().partition("Recommended alerts:")[2].partition("\n## ")[0]
    names = {name.removesuffix("_bucket") for name in re.findall(r"logbrook_[a-z_]+", alerts)}
    assert len(names) > 10
    assert names - {metric.name for metric in all_metrics()} == set()
