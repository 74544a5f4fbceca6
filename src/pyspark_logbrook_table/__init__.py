"""Registers the format `logbrook_table`: Spark loads `DefaultSource` from every module named `pyspark_*`."""

from logbrook.spark.tables.source import TableDataSource as DefaultSource

__all__ = ["DefaultSource"]
