"""HDFS in a process of its own: Hadoop's mini cluster, a name node and a data node, fetched with Maven."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from logbrook.testing.processes import working_directory
from tests.interop.java.download_cache import MissingToolError
from tests.interop.java.jars import mini_dfs_classpath
from tests.processes import running

JARS = Path(pyspark.__file__).parent / "jars"


@contextmanager
def running_hdfs() -> Iterator[str]:
    """Yield the URI of an empty HDFS. Raises MissingToolError."""
    (client,) = JARS.glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    classpath = os.pathsep.join([mini_dfs_classpath(version, f"{JARS}/*"), f"{JARS}/*"])
    with working_directory("hdfs") as (directory, _):
        log = Path(directory, "log")
        command = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", classpath, "MiniDfs", directory]
        with log.open("w") as errors, running(command, stdin=-1, stdout=-1, stderr=errors) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if match := re.fullmatch(r"port=(\d+)\n", line):
                    yield f"hdfs://127.0.0.1:{match[1]}"
                    return
            raise MissingToolError(f"Hadoop's mini cluster did not start: {log.read_text()[-2000:]}")
