"""The model of a large cluster elects a leader for every partition."""

from pathlib import Path

import pytest

from bench import cluster_scale
from bench.cluster_scale import ScaleModel, run, write_chart


def test_partitions_of_a_lost_broker_and_a_lost_rack_get_leaders() -> None:
    model = ScaleModel(600, brokers=30, racks=3)
    of_broker = model.lose(model.rack_of(0)[:1])
    assert of_broker.partitions == 20
    # The partitions of one broker are spread over many others, which act at the same time.
    assert of_broker.transactions > 5
    of_rack = model.lose(model.rack_of(1))
    assert of_rack.partitions > 150
    assert of_rack.seconds > of_broker.seconds > 0
    model.image.validate()


def test_every_partition_is_elected_in_one_committed_transaction() -> None:
    model = ScaleModel(300, brokers=6, racks=3)
    result = model.lose(model.rack_of(0))
    # Brokers bundle what they take over.
    assert result.transactions - result.conflicts < result.partitions / 5
    assert result.bytes_written > 100 * result.partitions


def test_the_chart_has_a_bar_for_each_number_of_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_scale, "BROKERS", 50)
    monkeypatch.setattr(cluster_scale, "_CHART", tmp_path / "chart.svg")
    write_chart(run([100, 200]))
    chart = (tmp_path / "chart.svg").read_text()
    assert "100 partitions" in chart
    assert "200 partitions" in chart
    assert "without a rack" in chart
