"""Lets Spark find the format `logbrook_table` by itself, as `pyspark_logbrook` does for `logbrook`."""

from logbrook.spark.tables.source import TableDataSource as DefaultSource

__all__ = ["DefaultSource"]
