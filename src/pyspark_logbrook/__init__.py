"""Lets Spark find the format `logbrook` by itself: it looks into all modules whose names begin with `pyspark_`."""

from logbrook.spark.source import LogbrookDataSource as DefaultSource

__all__ = ["DefaultSource"]
