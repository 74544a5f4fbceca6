"""Java classpaths: Kafka's artifacts by Maven, and this folder's own classes by javac. Both are made once and kept."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.interop.java.download_cache import MissingToolError, cache_directory, fetch, key_of, locked

HERE = Path(__file__).parent
_COMPILE_S_MAX = 120.0
_BUILD_CLASSPATH = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"


def tools_classpath() -> str:
    """Return the classpath of Kafka's tools and of the host they run in. Raises MissingToolError."""
    kafka = _resolved(HERE / "tools" / "pom.xml")
    return _with_compiled(kafka, [*HERE.glob("host/*.java"), *HERE.glob("tools/*.java")])


def clients_classpath(version: str) -> str:
    """Return the classpath of Kafka's clients of a version. Raises MissingToolError."""
    return _resolved(HERE / "scenarios" / "pom.xml", f"-Dkafka.version={version}")


def scenarios_classpath(version: str) -> str:
    """Return the classpath of the scenarios with Kafka's clients of a version. Raises MissingToolError."""
    return _with_compiled(clients_classpath(version), [*HERE.glob("host/*.java"), *HERE.glob("scenarios/*.java")])


def streams_classpath() -> str:
    """Return the classpath of Kafka Streams and an application of it. Raises MissingToolError."""
    return _with_compiled(_resolved(HERE / "streams" / "pom.xml"), list(HERE.glob("streams/*.java")))


def spark_connector_jars() -> list[str]:
    """Return Spark's own Kafka connector and its dependencies beside Spark. Raises MissingToolError."""
    return _resolved(HERE / "spark" / "pom.xml").split(os.pathsep)


def mini_dfs_classpath(version: str, hadoop_client: str) -> str:
    """Return the classpath of Hadoop's mini cluster and a program that runs its HDFS. Raises MissingToolError."""
    folder = HERE.parent.parent / "object_store" / "hdfs"
    cluster = _resolved(folder / "pom.xml", f"-Dhadoop.version={version}")
    return _with_compiled(os.pathsep.join([cluster, hadoop_client]), [folder / "MiniDfs.java"])


def mini_yarn_classpath(version: str, hadoop_client: str) -> str:
    """Return the classpath of Hadoop's mini clusters and a program that runs them. Raises MissingToolError."""
    folder = HERE.parent.parent / "spark" / "yarn"
    clusters = _resolved(folder / "pom.xml", f"-Dhadoop.version={version}")
    return _with_compiled(os.pathsep.join([clusters, hadoop_client]), [folder / "MiniYarn.java"])


def hive_metastore_classpath(spark_jars: str) -> str:
    """Return the classpath of the Hive metastore in Spark's JARs and of its program. Raises MissingToolError."""
    for tool in ("java", "javac"):
        if shutil.which(tool) is None:
            raise MissingToolError(f"there is no {tool} on this machine")
    return _with_compiled(spark_jars, [HERE.parent.parent / "object_store" / "hive" / "Metastore.java"])


def _resolved(pom: Path, *options: str) -> str:
    """Return all dependencies of the POM. Maven, which has its own cache, runs only for a POM that is not cached."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise MissingToolError(f"there is no {tool} on this machine")
    directory = cache_directory("java")
    answer = directory / f"{key_of(pom.read_text(), *options)}.classpath"
    with locked(directory):
        if not _is_whole(answer):
            command = ["mvn", "-B", "-q", "-f", str(pom), *options, _BUILD_CLASSPATH, f"-Dmdep.outputFile={answer}.new"]
            fetch(command, directory)
            Path(f"{answer}.new").replace(answer)
        return answer.read_text()


def _is_whole(answer: Path) -> bool:
    return answer.exists() and all(Path(jar).exists() for jar in answer.read_text().split(os.pathsep))


def _with_compiled(classpath: str, sources: Sequence[Path]) -> str:
    directory = cache_directory("java")
    classes = directory / f"{key_of(classpath, *(source.read_text() for source in sorted(sources)))}.classes"
    with locked(directory):
        if not classes.exists():
            new = Path(f"{classes}.new")
            shutil.rmtree(new, ignore_errors=True)
            command = ["javac", "-cp", classpath, "-d", str(new), *map(str, sources)]
            compiled = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S_MAX, check=False)
            # A compilation error is a bug of the tests, and no reason to skip.
            assert compiled.returncode == 0, compiled.stderr
            new.rename(classes)
    return os.pathsep.join([str(classes), classpath])
