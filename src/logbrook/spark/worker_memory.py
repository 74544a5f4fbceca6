"""Garbage collection in Spark's Python workers.

Spark's daemon runs a full garbage collection in a worker after every task. It visits the objects of imported modules,
about 140,000, which takes 65 ms of CPU: more than a task of a small micro-batch. `worker_daemon` exempts them before it
forks the workers. Workers of another daemon, as on a cluster, exempt them in their first tasks.
"""

import gc

from pyspark import TaskContext

# The first task imports modules when it needs them.
_TASKS = 2
_frozen_tasks = 0


def freeze_imports() -> None:
    """Exempt the existing objects from garbage collection, in the first tasks of a worker.

    Does nothing outside of Spark's tasks, and in later ones: garbage that is exempt is never freed.
    """
    global _frozen_tasks  # noqa: PLW0603 - a worker is a process
    if _frozen_tasks < _TASKS and TaskContext.get() is not None:
        gc.freeze()
        _frozen_tasks += 1
