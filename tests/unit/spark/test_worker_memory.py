"""Reading does not import pandas, and imported modules are exempt from the garbage collection after each task."""

import gc
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import TaskContext

from logbrook.spark import worker_memory
from logbrook.spark.arrow_batches import gather_batches

TASK = """
import sys
import numpy
import pyarrow as pa
from logbrook.model import TopicPartition
from logbrook.records.columns import encode
from logbrook.spark.fetching import decode_range
from logbrook.spark.offset_ranges import OffsetRange
from logbrook.spark.schema import COLUMNS

# From lists pyarrow would import pandas.
ends = pa.py_buffer(numpy.arange(5, dtype=numpy.int32))
texts = pa.Array.from_buffers(pa.binary(), 4, [None, ends, pa.py_buffer(b"abcd")])
[data] = encode(pa.RecordBatch.from_arrays([texts, texts], ["key", "value"]), now_ms=1)
batch = decode_range(memoryview(data), COLUMNS, OffsetRange(TopicPartition("t", 5), 0, 4))
assert batch.column(COLUMNS.index("partition")).to_pylist() == [5] * 4
print("pandas" in sys.modules)
"""


@pytest.fixture(autouse=True)
def _unfrozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker_memory, "_frozen_tasks", 0)
    gc.unfreeze()
    yield
    TaskContext._setTaskContext(None)
    gc.unfreeze()


def gather() -> None:
    assert not list(gather_batches(iter([pa.RecordBatch.from_pylist([], pa.schema([("n", pa.int64())]))])))


def test_the_first_tasks_exempt_the_objects_that_exist() -> None:
    TaskContext._setTaskContext(TaskContext())
    for _ in range(2):
        gather()
        assert gc.get_freeze_count() > 10_000
        gc.unfreeze()
    gather()
    assert gc.get_freeze_count() == 0


def test_nothing_is_exempt_outside_of_a_task() -> None:
    gather()
    assert gc.get_freeze_count() == 0


def test_reading_a_topic_does_not_import_pandas() -> None:
    done = subprocess.run([sys.executable, "-c", TASK], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr
