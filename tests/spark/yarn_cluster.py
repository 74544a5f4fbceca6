"""HDFS and YARN in a process of their own, and a packed Python environment for its nodes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from logbrook.testing.processes import working_directory
from tests.interop.java.download_cache import MissingToolError, cache_directory, fetch, key_of, locked
from tests.interop.java.jars import mini_yarn_classpath
from tests.processes import running

ROOT = Path(__file__).parent.parent.parent
JARS = Path(pyspark.__file__).parent / "jars"
_CLUSTER_S_MAX = 900.0


@contextmanager
def running_yarn() -> Iterator[str]:
    """Yield the directory of the settings of a cluster with one node. Raises MissingToolError."""
    (client,) = JARS.glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    classpath = os.pathsep.join([mini_yarn_classpath(version, f"{JARS}/*"), f"{JARS}/*"])
    with working_directory("yarn") as (directory, _):
        log = Path(directory, "log")
        # Files of the node are below the directory of Hadoop's tests.
        place = f"-Dtest.build.data={directory}"
        command = ["java", "-Xmx1g", "-XX:TieredStopAtLevel=1", place, "-cp", classpath, "MiniYarn", directory]
        with log.open("w") as errors, running(command, _CLUSTER_S_MAX, stdin=-1, stdout=-1, stderr=errors) as process:
            assert process.stdout is not None
            if not any(line == "ready\n" for line in process.stdout):
                raise MissingToolError(f"Hadoop's mini cluster did not start: {log.read_text()[-2000:]}")
            yield directory


def pack_environment(archive: Path) -> None:
    """Pack a virtual environment with this version of Logbrook, as docs/SPARK.md says. Raises MissingToolError.

    The environment with the dependencies is kept in the user's cache.
    """
    directory = cache_directory("packed-environment")
    environment = directory / key_of(sys.version, (ROOT / "pyproject.toml").read_text())
    python = str(environment / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    with locked(directory):
        if not (environment / "complete").exists():
            fetch([sys.executable, "-m", "venv", "--clear", str(environment)], directory)
            fetch([*install, f"{ROOT}[columns]", "deltalake", "venv-pack"], directory)
            (environment / "complete").touch()
        fetch([*install, "--force-reinstall", "--no-deps", str(ROOT)], directory)
        packing = [python, "-m", "venv_pack", "--quiet", "--prefix", str(environment), "--output", str(archive)]
        subprocess.run([*packing, "--compress-level", "1"], check=True, stdin=subprocess.DEVNULL)
