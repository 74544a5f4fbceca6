"""A Hive metastore in a process of its own, from the JARs of PySpark, with its database in memory."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from logbrook.testing.processes import ChildProcess, free_port, wait_until, working_directory
from tests.interop.java.download_cache import MissingToolError
from tests.interop.java.jars import hive_metastore_classpath

JARS = Path(pyspark.__file__).parent / "jars"
_START_S_MAX = 120.0


@contextmanager
def running_hive() -> Iterator[str]:
    """Yield host and port of a metastore for the duration of the block. Raises MissingToolError."""
    port = free_port()
    classpath = hive_metastore_classpath(f"{JARS}/*")
    with working_directory("hive") as (directory, reaper):
        process = ChildProcess(os.path.join(directory, "log"), reaper)
        # Derby writes its log to the working directory.
        derby = f"-Dderby.stream.error.file={directory}/derby.log"
        java = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", derby, "-cp", classpath, "Metastore", str(port)]
        process.launch([*java, os.path.join(directory, "warehouse")])
        try:
            if not wait_until(lambda: _listens(port) or not process.is_running, _START_S_MAX, 0.1):
                raise MissingToolError(f"the metastore did not start in {_START_S_MAX:.0f} s: {process.log_tail()}")
            if not process.is_running:
                raise MissingToolError(f"the metastore ended at once: {process.log_tail()}")
            yield f"127.0.0.1:{port}"
        finally:
            process.end()


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            return True
    except OSError:
        return False
