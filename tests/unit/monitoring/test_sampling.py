"""Rates between observations of a cluster."""

from logbrook.client.admin_results import ClusterInfo, PartitionInfo, TopicDescription
from logbrook.model.identifiers import BrokerId, LeaderEpoch, Offset
from logbrook.monitoring.metrics import BrokerMetrics
from logbrook.monitoring.sampling import ClusterSampler, Observation, ObservedGroup

ONE = BrokerId(1)


def observation(
    at_s: float,
    ends: dict[str, list[int]],
    *,
    size_bytes: int = 0,
    metrics: BrokerMetrics | None = None,
    groups: dict[str, int] | None = None,
) -> Observation:
    topics = [
        TopicDescription(
            name,
            b"",
            False,
            tuple(
                PartitionInfo(number, ONE, LeaderEpoch(0), (ONE,), (ONE,), Offset(0), Offset(end), size_bytes)
                for number, end in enumerate(offsets)
            ),
        )
        for name, offsets in ends.items()
    ]
    observed = None
    if groups is not None:
        observed = tuple(ObservedGroup(name, "Stable", frozenset(), committed, 0) for name, committed in groups.items())
    return Observation(at_s, round(at_s * 1000), ClusterInfo(None, ONE, ()), tuple(topics), observed, metrics)


def test_the_first_sample_has_no_rates() -> None:
    sample = ClusterSampler().add(observation(1.0, {"a": [10]}, groups={"g": 5}))
    assert (sample.has_rates, sample.topics, sample.groups) == (False, {}, {"g": None})


def test_records_in_are_counted_by_end_offsets_and_new_partitions_start_at_0() -> None:
    sampler = ClusterSampler()
    sampler.add(observation(1.0, {"a": [10]}))
    sample = sampler.add(observation(3.0, {"a": [30, 8], "b": [4]}))
    assert {name: rates.in_records for name, rates in sample.topics.items()} == {"a": 14, "b": 2}
    assert sample.total(lambda rates: rates.in_records) == 16


def test_a_topic_that_was_recreated_has_no_negative_rate() -> None:
    sampler = ClusterSampler()
    sampler.add(observation(1.0, {"a": [10]}))
    assert sampler.add(observation(2.0, {"a": [3]})).topics["a"].in_records == 0


def test_without_metrics_bytes_in_are_the_growth_on_disk_and_the_rest_is_unknown() -> None:
    sampler = ClusterSampler()
    sampler.add(observation(1.0, {"a": [1]}, size_bytes=100))
    rates = sampler.add(observation(2.0, {"a": [1]}, size_bytes=300)).topics["a"]
    assert (rates.in_bytes, rates.out_records, rates.out_bytes) == (200, None, None)


def test_with_metrics_rates_and_latencies_are_computed_from_the_counters() -> None:
    before = BrokerMetrics({"a": {"in_bytes": 10, "out_bytes": 5}}, histograms={"Produce": {0.1: 1, 0.2: 1}})
    after = BrokerMetrics(
        {"a": {"in_bytes": 20, "out_bytes": 9, "messages_out": 6}}, histograms={"Produce": {0.1: 1, 0.2: 11}}
    )
    sampler = ClusterSampler()
    sampler.add(observation(1.0, {"a": [1]}, metrics=before))
    sample = sampler.add(observation(3.0, {"a": [1]}, metrics=after))
    rates = sample.topics["a"]
    assert (rates.in_bytes, rates.out_records, rates.out_bytes) == (5, 3, 2)
    assert (sample.produce_p50_ms, sample.sync_p99_ms) == (150, None)


def test_the_rate_of_a_group_spans_samples_without_groups_and_is_unknown_after_a_reset() -> None:
    sampler = ClusterSampler()
    sampler.add(observation(1.0, {}, groups={"g": 100}))
    sampler.add(observation(2.0, {}))
    assert sampler.add(observation(5.0, {}, groups={"g": 140})).groups == {"g": 10}
    assert sampler.add(observation(6.0, {}, groups={"g": 50})).groups == {"g": None}
    sampler.reset()
    assert sampler.add(observation(7.0, {}, groups={"g": 60})).groups == {"g": None}
