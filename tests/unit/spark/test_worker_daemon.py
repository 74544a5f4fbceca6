"""The daemon of Python workers has imported what tasks need, and its forks can use it."""

import subprocess
import sys

SCRIPT = """
import os, signal, sys, threading
from logbrook.spark import worker_daemon
worker_daemon.preload("pyspark.worker")
wanted = ("logbrook.spark.fetching", "logbrook.spark.sending", "pyarrow", "pyspark.worker")
print([name for name in wanted if name not in sys.modules], threading.active_count(), flush=True)
if (pid := os.fork()) == 0:
    signal.alarm(30)
    import numpy, pyarrow, pyarrow.compute
    square = numpy.ones((300, 300)) @ numpy.ones((300, 300))
    table = pyarrow.table({"n": list(range(100_000)) * 2}).group_by("n").aggregate([("n", "count")])
    os._exit(0 if square[0][0] == 300 and table.num_rows == 100_000 else 1)
print(os.waitpid(pid, 0)[1])
"""


def test_the_worker_daemon_imports_the_modules_of_tasks_before_it_forks() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == ("[] 1\n0\n", 0), done.stderr
