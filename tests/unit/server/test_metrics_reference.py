"""docs/METRICS.md, which is made from the declarations."""

from pathlib import Path

import pytest

from logbrook.server.metrics.catalogue import all_metrics
from logbrook.server.metrics.declaration import Metric
from logbrook.server.metrics.reference import metrics_reference

DOCUMENT = Path(__file__).parents[3] / "docs" / "METRICS.md"


def test_the_document_is_fresh() -> None:
    command = "python -m logbrook.server.metrics.reference > docs/METRICS.md"
    assert DOCUMENT.read_text() == metrics_reference(), f"run: {command}"


@pytest.mark.parametrize("metric", all_metrics(), ids=lambda metric: metric.name)
def test_every_metric_has_its_row(metric: Metric) -> None:
    assert metrics_reference().count(f"\n| `{metric.name}` | {metric.kind} |") == 1
