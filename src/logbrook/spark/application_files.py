"""A directory that the processes of a Spark application on one machine share: that of SparkFiles.

Spark creates it for each application and removes it with the application.
"""

import os

from pyspark import SparkContext, SparkFiles


def worker_directory() -> str | None:
    """Return the directory in a worker process, None elsewhere."""
    return _existing(SparkFiles.getRootDirectory()) if SparkFiles._is_running_on_worker else None


def driver_directory() -> str | None:
    """Return the directory in the program that has started Spark, None if it has not."""
    return None if SparkContext._active_spark_context is None else _existing(SparkFiles.getRootDirectory())


def _existing(directory: str) -> str:
    # A directory for the artifacts of one session is created only if there are any.
    while not os.path.isdir(directory) and directory != os.path.dirname(directory):
        directory = os.path.dirname(directory)
    return directory
