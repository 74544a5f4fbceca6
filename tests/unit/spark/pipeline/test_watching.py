"""What is made of Spark's reports of its batches."""

from typing import Any

from logbrook.spark.pipeline.watching import QueryState, lag_of


def report(second: int, batch_id: int, rows: int, end: Any = None, latest: Any = None) -> dict[str, Any]:
    return {
        "timestamp": f"2026-01-01T00:00:{second:02}.000Z",
        "batchId": batch_id,
        "numInputRows": rows,
        "processedRowsPerSecond": 12.5,
        "batchDuration": 400,
        "sources": [{"endOffset": end, "latestOffset": latest}],
    }


def offsets(**partitions: int) -> dict[str, Any]:
    return {"orders": {"id": "00", "offsets": {name.removeprefix("p"): offset for name, offset in partitions.items()}}}


def test_rows_add_up_and_the_rest_is_of_the_last_batch() -> None:
    state = QueryState("q")
    assert state.take([report(1, 0, 10), report(2, 1, 5, offsets(p0=15), offsets(p0=18))])
    assert (state.batch_id, state.rows, state.batch_rows, state.lag) == (1, 15, 5, 3)
    assert (state.rows_per_s, state.batch_s) == (12.5, 0.4)


def test_a_report_counts_once() -> None:
    state = QueryState("q")
    state.take([report(1, 0, 10)])
    assert not state.take([report(1, 0, 10)])
    assert state.rows == 10


def test_a_report_without_data_has_the_number_of_the_next_batch() -> None:
    state = QueryState("q")
    state.take([report(1, 0, 10), report(2, 1, 0), report(3, 1, 7)])
    assert state.rows == 17


def test_the_lag_is_over_all_partitions() -> None:
    assert lag_of(report(1, 0, 1, offsets(p0=5, p1=7), offsets(p0=9, p1=7, p2=3))) == 7


def test_the_lag_is_known_by_topic() -> None:
    end = {"a": {"offsets": {"0": 5, "1": 5}}, "b": {"offsets": {"0": 1}}}
    latest = {"a": {"offsets": {"0": 9, "1": 6}}, "b": {"offsets": {"0": 1}}}
    state = QueryState("q")
    state.take([report(1, 0, 1, end, latest)])
    assert (state.lags, state.lag) == ({"a": 5, "b": 0}, 5)
    assert state.batch_at_ms == 1_767_225_601_000


def test_offsets_may_come_as_text() -> None:
    text = '{"orders": {"id": "00", "offsets": {"0": 4}}}'
    assert lag_of(report(1, 0, 1, text, offsets(p0=6))) == 2


def test_a_source_that_counts_otherwise_has_no_lag() -> None:
    for end in (None, "3", 3, '{"logOffset": 4}', "not JSON"):
        assert lag_of(report(1, 0, 1, end, end)) is None
    assert lag_of({}) is None
