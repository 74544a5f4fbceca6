"""Makes the daemons in which Spark plans reads and writes of Python data sources import their modules once.

Python runs this module when it starts, in all processes that have this directory on their path. Spark's daemon forks a
worker and then lets it import pyarrow, PySpark and Logbrook; after each call the worker collects the garbage among all
their objects. Here the daemon imports them before it forks, and exempts them from collections. For the workers of tasks
`logbrook.spark.worker_daemon` does the same, but Spark has no setting for the daemons of plans.
"""

import sys

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    import gc
    from importlib import import_module

    for name in (*sys.orig_argv[3:4], "logbrook.spark.source", "logbrook.spark.writer", "logbrook.spark.tables.source"):
        import_module(name)
    gc.freeze()
