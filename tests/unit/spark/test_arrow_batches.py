"""Arrow batches are split for Spark and gathered from it."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbrook.spark import arrow_batches
from logbrook.spark.arrow_batches import gather_batches, split_batch


@pytest.fixture(autouse=True, scope="module")
def _small_limits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("ROWS_MAX", 8), ("BYTES_MAX", 1000), ("_GATHERED_ROWS", 10), ("_GATHERED_BYTES", 2000)):
            patch.setattr(arrow_batches, name, value)
        yield


def batch_of(sizes: list[int]) -> pa.RecordBatch:
    values = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})


def values_of(batches: list[pa.RecordBatch]) -> list[bytes]:
    return [value for batch in batches for value in batch.column(0).to_pylist()]


@given(sizes=st.lists(st.sampled_from([0, 1, 30, 999, 1001, 5000]), max_size=60))
def test_a_batch_for_spark_is_limited_in_rows_and_bytes(sizes: list[int]) -> None:
    batch = batch_of(sizes)
    pieces = list(split_batch(batch))
    assert values_of(pieces) == values_of([batch])
    assert all(0 < piece.num_rows <= 8 for piece in pieces)
    assert all(piece.num_rows == 1 or piece.nbytes <= 2000 for piece in pieces)


@given(parts=st.lists(st.lists(st.sampled_from([0, 1, 30, 999, 5000]), max_size=12), max_size=20))
def test_batches_of_spark_are_gathered_up_to_a_limit(parts: list[list[int]]) -> None:
    batches = [batch_of(sizes) for sizes in parts]
    gathered = list(gather_batches(iter(batches)))
    assert values_of(gathered) == values_of(batches)
    assert all(batch.num_rows for batch in gathered)
    # All but the last have reached a limit, and none would have reached it without its last part.
    assert all(batch.num_rows >= 10 or batch.nbytes >= 1900 for batch in gathered[:-1])
    assert all(batch.num_rows < 10 + 12 for batch in gathered)
