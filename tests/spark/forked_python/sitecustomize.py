"""Makes a Python process that Spark starts run in a fork of a process that has imported its modules.

Python runs this module when it starts, in all processes that have this directory on their path. Spark starts a dozen
for a session and one more for each streaming query, and each takes a second to import pyarrow, PySpark and Logbrook.
Here such a process asks the server of `tests/spark/fork_server.py` for a fork, gives it the arguments, the environment,
the working directory and the standard streams, forwards SIGTERM, and exits with its status.
"""

import json
import os
import signal
import socket
import sys

SERVER = "TESTS_FORK_SERVER"
PROGRAMS = ("pyspark.daemon", "pyspark.sql.streaming.python_streaming_source_runner", "logbrook.spark.worker_daemon")


def run_in_fork(server: str, arguments: list[str]) -> int:
    """Return the exit status of the fork. It is killed if this process ends before it."""
    request = {"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(server)
        socket.send_fds(connection, [b"\n"], [0, 1, 2])
        with connection.makefile("rwb") as stream:
            stream.write(json.dumps(request).encode() + b"\n")
            stream.flush()
            child = int(stream.readline())
            signal.signal(signal.SIGTERM, lambda number, _: os.kill(child, number))
            # The fork has the streams now. Whoever reads them waits for their end in all processes.
            nowhere = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nowhere, descriptor)
            return int(stream.readline() or 1)


if sys.orig_argv[1:2] == ["-m"] and sys.orig_argv[2] in PROGRAMS and SERVER in os.environ:
    os._exit(run_in_fork(os.environ[SERVER], sys.orig_argv[2:]))
