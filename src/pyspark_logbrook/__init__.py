"""Registers the format `logbrook`: Spark loads `DefaultSource` from every module named `pyspark_*`."""

from logbrook.spark.source import LogbrookDataSource as DefaultSource

__all__ = ["DefaultSource"]
