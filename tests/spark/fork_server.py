"""Server of forks for the Python processes that Spark starts: `python -m tests.spark.fork_server SOCKET`.

It imports what they need once and ends with its standard input. `forked_python/sitecustomize.py` is its client.
"""

import fcntl
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from tests.spark.forked_python.sitecustomize import SERVER

PATH = Path(__file__).parent / "forked_python"
# What the programs import, but not the programs themselves, which are run as `__main__`. The worker of filter pushdown
# is not among them: Logbrook's source finds out by its presence whether Spark pushes filters down.
MODULES = (
    "pyspark.worker",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "logbrook.spark.exactly_once",
    "logbrook.spark.fetching",
    "logbrook.spark.sending",
    "logbrook.spark.source",
    "logbrook.spark.stream_reader",
    "logbrook.spark.tables.iceberg_io",
    "logbrook.spark.tables.source",
    "logbrook.spark.writer",
    # What others import when they are used.
    "deltalake",
    "encodings.idna",
    "pandas",
    "pyarrow.pandas_compat",
    "pyiceberg.catalog.sql",
    "sqlalchemy.dialects.sqlite",
)
_STOP_S_MAX = 60.0


class ForkServer:
    """The server in a process of its own."""

    def __enter__(self) -> Self:
        self._directory = TemporaryDirectory(prefix="logbrook-forks-")
        self._socket = f"{self._directory.name}/socket"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.fork_server", self._socket],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=PATH.parent.parent.parent,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.communicate(timeout=_STOP_S_MAX)
        self._directory.cleanup()

    def environment(self) -> dict[str, str]:
        """Return what a JVM needs in its environment for its Python processes to be forks."""
        path = os.pathsep.join(filter(None, (str(PATH), os.environ.get("PYTHONPATH"))))
        return {SERVER: self._socket, "PYTHONPATH": path}


def serve(path: str) -> None:
    for name in MODULES:
        import_module(name)
    # Keep the collector from touching, and thus copying, the pages that the forks share.
    gc.freeze()
    # The forks of this process end unobserved; each waits for its own.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(100)
        os.write(1, b"ready\n")
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(listener, select.POLLIN)
        while all(descriptor != 0 for descriptor, _ in poll.poll()):
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    listener.close()
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    _supervise(connection)
                    os._exit(0)


def _supervise(connection: socket.socket) -> None:
    """Run a request in a fork, and tell its process id and its exit status."""
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
    # The client may be killed at any time.
    with suppress(BrokenPipeError), connection.makefile("rwb") as stream:
        request = json.loads(stream.readline())
        child = os.fork()
        if child == 0:
            _end_with(connection)
            os._exit(_run(request, descriptors))
        # Whoever reads the standard streams waits for their end in all processes.
        os.closerange(0, 3)
        for descriptor in descriptors:
            os.close(descriptor)
        stream.write(b"%d\n" % child)
        stream.flush()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        stream.write(b"%d\n" % (code if code >= 0 else 128 - code))


def _end_with(connection: socket.socket) -> None:
    """Let the system kill this process and its forks when the client ends, which sends nothing after its request."""
    os.setpgid(0, 0)
    fcntl.fcntl(connection, fcntl.F_SETOWN, -os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)


def _run(request: dict[str, Any], descriptors: list[int]) -> int:
    """Run a module as `python -m` does, and return the exit status."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.path[:0] = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.argv = request["arguments"]
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
