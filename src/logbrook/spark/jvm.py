"""The JVM that this process has started for Spark: whether it still runs, and no tracebacks when it does not.

Every call to a JVM that has ended fails, and Py4J logs the traceback of each, through its own loggers and through the
root logger. A command that notices the end reports it once (`JvmEndedError`) and calls the JVM no more.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import Popen

from pyspark import SparkContext
from pyspark.sql import SparkSession

from logbrook.spark.errors import JvmEndedError

_PY4J = "py4j"


def raise_if_jvm_ended() -> None:
    """Raise JvmEndedError if this process has started a JVM that has ended."""
    exit_code = jvm_exit_code()
    if exit_code is not None:
        raise JvmEndedError(exit_code)


def jvm_exit_code() -> int | None:
    """Return the exit code of the JVM, negative for a signal; None if it runs or was not started by this process."""
    process: Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return None if process is None else process.poll()


def stop_spark(spark: SparkSession) -> None:
    """Stop the session, unless its JVM has ended: there is nothing to stop, and every call would fail."""
    if jvm_exit_code() is None:
        spark.stop()


@contextmanager
def py4j_silenced() -> Iterator[None]:
    """Drop Py4J's log records while the block runs. Its errors are raised as well."""
    root, py4j = logging.getLogger(), logging.getLogger(_PY4J)
    level = py4j.level
    py4j.setLevel(logging.CRITICAL)
    root.addFilter(_is_not_of_py4j)
    try:
        yield
    finally:
        root.removeFilter(_is_not_of_py4j)
        py4j.setLevel(level)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Return False for a record that Py4J has logged through the root logger."""
    return os.path.basename(os.path.dirname(record.pathname)) != _PY4J
