"""A pipeline that is a Python file with ordinary Structured Streaming in it.

    def pipeline(spark):
        orders = spark.readStream.format("logbrook").option(...).load()
        return orders.writeStream.format("logbrook_table").option(...)

It returns a writer or a list of them, not yet started: so `--once` can have them end, and `--dry-run` starts nothing.
"""

import importlib.util
import os
import traceback
from collections.abc import Sequence
from types import ModuleType

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from logbrook.config.errors import Problem
from logbrook.config.printable import printable
from logbrook.spark.options import KAFKA_PREFIX
from logbrook.spark.pipeline.compiling import Query
from logbrook.spark.pipeline.errors import PipelineRefusedError
from logbrook.spark.sentences import sentence_of

_FUNCTION = "pipeline"
_STREAM = "StreamingRelationV2"
_SERVERS = "bootstrap.servers"


def check_file(path: str) -> None:
    """What can be said of the file before Spark starts. Raises PipelineRefusedError."""
    try:
        with open(path, "rb") as file:
            compile(file.read(), path, "exec")
    except OSError as error:
        raise _refused(path, f"it cannot be read: {error.strerror}") from error
    except SyntaxError as error:
        raise _refused(path, f"this is not Python: {error.msg}", error.lineno or 0) from error
    except ValueError as error:
        raise _refused(path, f"this is not Python: {error}") from error


def queries_of(path: str, spark: SparkSession) -> list[Query]:
    """Call the file's function `pipeline`. Raises PipelineRefusedError."""
    try:
        function = getattr(_load(path), _FUNCTION, None)
        if not callable(function):
            raise _refused(path, "it has no function pipeline(spark)")
        returned = function(spark)
    except PipelineRefusedError:
        raise
    # Whatever the file's own code raises.
    except Exception as error:
        what = f"{type(error).__name__}: {sentence_of(error)}"
        raise _refused(path, what, _line_within(path, error)) from error
    writers = list(returned) if isinstance(returned, list | tuple) else [returned]
    started = [one for one in writers if isinstance(one, StreamingQuery)]
    for query in started:
        query.stop()
    if started:
        raise _refused(path, "pipeline(spark) has started its queries; return the writers, without .start()")
    if not writers or not all(isinstance(one, DataStreamWriter) for one in writers):
        kinds = ", ".join(type(one).__name__ for one in writers) or "an empty list"
        raise _refused(path, f"pipeline(spark) must return a DataStreamWriter or a list of them, and returned {kinds}")
    return [Query(f"{name_of(path)}-{number}", writer) for number, writer in enumerate(writers, start=1)]


def name_of(path: str) -> str:
    """What a file's pipeline is called."""
    return os.path.splitext(os.path.basename(path))[0]


def servers_of(queries: Sequence[Query]) -> str | None:
    """The cluster of the first source that names one, which only Spark's plan of the query knows."""
    for query in queries:
        leaves = query.writer._df._jdf.queryExecution().analyzed().collectLeaves()
        for number in range(leaves.size()):
            leaf = leaves.apply(number)
            if leaf.getClass().getSimpleName() != _STREAM:
                continue
            for option in (f"{KAFKA_PREFIX}{_SERVERS}", _SERVERS):
                if (found := leaf.extraOptions().get(option)) is not None:
                    return str(found)
    return None


def _load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("logbrook_pipeline", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _line_within(path: str, error: BaseException) -> int:
    """The last line of the file itself that the error has passed."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if os.path.abspath(frame.filename) == os.path.abspath(path)]
    return (lines[-1] or 0) if lines else 0


def _refused(path: str, what: str, line: int = 0) -> PipelineRefusedError:
    return PipelineRefusedError([Problem(printable(path), what, line)])
