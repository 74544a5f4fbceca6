"""QueryProgress from Spark's progress reports."""

from typing import Any

from logbrook.spark.pipeline.display import QueryProgress, lag_of


def report(second: int, batch_id: int, rows: int, end: Any = None, latest: Any = None) -> dict[str, Any]:
    return {
        "timestamp": f"2026-01-01T00:00:{second:02}.000Z",
        "batchId": batch_id,
        "numInputRows": rows,
        "processedRowsPerSecond": 12.5,
        "batchDuration": 400,
        "durationMs": {"latestOffset": 1, "triggerExecution": 400, "addBatch": 390},
        "sources": [{"endOffset": end, "latestOffset": latest}],
    }


def offsets(**partitions: int) -> dict[str, Any]:
    return {"orders": {"id": "00", "offsets": {name.removeprefix("p"): offset for name, offset in partitions.items()}}}


def test_rows_add_up_and_the_rest_is_of_the_last_batch() -> None:
    state = QueryProgress("q")
    assert state.update([report(1, 0, 10), report(2, 1, 5, offsets(p0=15), offsets(p0=18))])
    assert (state.batch_id, state.rows, state.batch_rows, state.lag) == (1, 15, 5, 3)
    assert (state.rows_per_s, state.batch_s) == (12.5, 0.4)


def test_a_report_counts_once() -> None:
    state = QueryProgress("q")
    state.update([report(1, 0, 10)])
    assert not state.update([report(1, 0, 10)])
    assert state.rows == 10


def idle(second: int, batch_id: int, end: Any = None, latest: Any = None) -> dict[str, Any]:
    """A report of a trigger that ran no batch; Spark gives it the id of the next one."""
    return report(second, batch_id, 0, end, latest) | {"durationMs": {"latestOffset": 1, "triggerExecution": 2}}


def test_an_idle_trigger_keeps_the_last_batch_and_updates_rate_and_lag() -> None:
    state = QueryProgress("q")
    state.update([report(1, 0, 10), idle(2, 1, offsets(p0=10), offsets(p0=12))])
    assert (state.batch_id, state.rows, state.batch_rows, state.batch_s) == (0, 10, 10, 0.4)
    assert (state.rows_per_s, state.lag) == (0.0, 2)
    state.update([report(3, 1, 7)])
    assert (state.batch_id, state.rows, state.batch_rows) == (1, 17, 7)


def test_a_query_that_has_only_been_idle_has_no_batch() -> None:
    state = QueryProgress("q")
    assert state.update([idle(1, 0)])
    assert (state.batch_id, state.batch_at_ms) == (None, None)


def test_a_batch_without_rows_is_a_batch() -> None:
    state = QueryProgress("q")
    state.update([report(1, 0, 0)])
    assert (state.batch_id, state.batch_rows) == (0, 0)


def test_the_lag_is_over_all_partitions() -> None:
    assert lag_of(report(1, 0, 1, offsets(p0=5, p1=7), offsets(p0=9, p1=7, p2=3))) == 7


def test_the_lag_is_known_by_topic() -> None:
    end = {"a": {"offsets": {"0": 5, "1": 5}}, "b": {"offsets": {"0": 1}}}
    latest = {"a": {"offsets": {"0": 9, "1": 6}}, "b": {"offsets": {"0": 1}}}
    state = QueryProgress("q")
    state.update([report(1, 0, 1, end, latest)])
    assert (state.lags, state.lag) == ({"a": 5, "b": 0}, 5)
    assert state.batch_at_ms == 1_767_225_601_000


def test_offsets_may_come_as_text() -> None:
    text = '{"orders": {"id": "00", "offsets": {"0": 4}}}'
    assert lag_of(report(1, 0, 1, text, offsets(p0=6))) == 2


def test_the_lag_of_a_repeated_batch_is_not_known() -> None:
    """Spark plans it from its checkpoint, and does not ask for the latest offsets."""
    state = QueryProgress("q")
    state.update([report(1, 7, 5, offsets(p0=15), None)])
    assert (state.lag, state.lags) == (None, {})
    state.update([report(2, 8, 5, offsets(p0=20), offsets(p0=50))])
    assert state.lag == 30


def test_a_source_that_counts_otherwise_has_no_lag() -> None:
    for end in (None, "3", 3, '{"logOffset": 4}', "not JSON"):
        assert lag_of(report(1, 0, 1, end, end)) is None
    assert lag_of({}) is None
