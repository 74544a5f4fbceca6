"""A pipeline in a Python file with ordinary Structured Streaming code.

    def pipeline(spark):
        orders = spark.readStream.format("logbrook").option(...).load()
        return orders.writeStream.format("logbrook_table").option(...)

It returns one DataStreamWriter or a list of them, not started, so that `--once` can change the trigger and
`pipeline check` starts nothing.
"""

import importlib.util
import os
import traceback
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from logbrook.client.security_options import OPTIONS
from logbrook.config.errors import Problem
from logbrook.model.text import printable
from logbrook.spark.errors import InvalidPipelineError, summarize_error
from logbrook.spark.options import KAFKA_PREFIX
from logbrook.spark.pipeline.compiling import PreparedQuery

_FUNCTION = "pipeline"
_STREAM = "StreamingRelationV2"
_SERVERS = "bootstrap.servers"


def check_file(path: str) -> None:
    """Check that the file exists and compiles, before Spark starts. Raises InvalidPipelineError."""
    try:
        with open(path, "rb") as file:
            compile(file.read(), path, "exec")
    except OSError as error:
        raise _invalid(path, f"it cannot be read: {error.strerror}") from error
    except SyntaxError as error:
        raise _invalid(path, f"this is not Python: {error.msg}", error.lineno or 0) from error
    except ValueError as error:
        raise _invalid(path, f"this is not Python: {error}") from error


def queries_of(path: str, spark: SparkSession) -> list[PreparedQuery]:
    """Call the file's function `pipeline` and return its queries. Raises InvalidPipelineError."""
    try:
        function = getattr(_load(path), _FUNCTION, None)
        if not callable(function):
            raise _invalid(path, "it has no function pipeline(spark)")
        returned = function(spark)
    except InvalidPipelineError:
        raise
    # The user's code may raise anything.
    except Exception as error:
        message = f"{type(error).__name__}: {summarize_error(error)}"
        raise _invalid(path, message, _line_within(path, error)) from error
    writers = list(returned) if isinstance(returned, list | tuple) else [returned]
    started = [writer for writer in writers if isinstance(writer, StreamingQuery)]
    for query in started:
        query.stop()
    if started:
        raise _invalid(path, "pipeline(spark) has started its queries; return the writers, without .start()")
    if not writers or not all(isinstance(writer, DataStreamWriter) for writer in writers):
        kinds = ", ".join(type(writer).__name__ for writer in writers) or "an empty list"
        raise _invalid(path, f"pipeline(spark) must return a DataStreamWriter or a list of them, and returned {kinds}")
    return [PreparedQuery(f"{name_of(path)}-{number}", writer) for number, writer in enumerate(writers, start=1)]


def name_of(path: str) -> str:
    """Return the pipeline's name: that of the file without its suffix."""
    return os.path.splitext(os.path.basename(path))[0]


def cluster_options_of(queries: Sequence[PreparedQuery]) -> dict[str, str]:
    """Return the bootstrap servers of the first source that has them, and its security options.

    They are in the analyzed plans of the queries; the result is empty if there are none.
    """
    for query in queries:
        leaves = query.writer._df._jdf.queryExecution().analyzed().collectLeaves()
        for number in range(leaves.size()):
            leaf = leaves.apply(number)
            if leaf.getClass().getSimpleName() != _STREAM:
                continue
            options = {name: _option(leaf, name) for name in (_SERVERS, *sorted(OPTIONS))}
            if options[_SERVERS] is not None:
                return {name: value for name, value in options.items() if value is not None}
    return {}


def _option(leaf: Any, name: str) -> str | None:
    """Return an option of a source in the plan, with or without the prefix."""
    values = (leaf.extraOptions().get(option) for option in (f"{KAFKA_PREFIX}{name}", name))
    return next((str(value) for value in values if value is not None), None)


def _load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("logbrook_pipeline", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _line_within(path: str, error: BaseException) -> int:
    """Return the innermost line of the file in the traceback, 0 for none."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if os.path.abspath(frame.filename) == os.path.abspath(path)]
    return (lines[-1] or 0) if lines else 0


def _invalid(path: str, message: str, line: int = 0) -> InvalidPipelineError:
    return InvalidPipelineError([Problem(printable(path), message, line)])
