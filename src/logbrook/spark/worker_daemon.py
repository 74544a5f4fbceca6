"""Daemon of Spark's Python workers that imports once what every task needs, and then forks the workers.

Spark's own daemon forks first, so that each worker imports pyarrow, numba and this package again, which takes a second
of CPU. `session` selects this one on a local master with the setting `spark.python.daemon.module`.

Only the forking thread exists in a worker, so no import may start a thread. Those that numpy and pyarrow start, of
OpenBLAS and jemalloc, are exceptions: both libraries restart their threads after a fork.
"""

import gc
import sys
from importlib import import_module

from pyspark.daemon import manager

WORKER_MODULE = "pyspark.worker"
_OF_TASKS = ("logbrook.spark.fetching", "logbrook.spark.sending", "logbrook.spark.tables.source")


def preload(worker_module: str) -> None:
    """Import the worker's module and those that tasks of this package use.

    A module that cannot be imported is left to the task that needs it, which reports the error.
    """
    for name in (worker_module, *_OF_TASKS):
        try:
            import_module(name)
        except ImportError:
            continue
    # Keep the collector from touching, and thus copying, the pages that the workers share.
    gc.freeze()


if __name__ == "__main__":
    preload(sys.argv[1] if len(sys.argv) > 1 else WORKER_MODULE)
    manager()
