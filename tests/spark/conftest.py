"""One Spark and one broker for all tests below this folder."""

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from logbrook import Broker
from logbrook.spark import session
from logbrook.testing.exactly_once.java import QUICK_JAVA
from tests.interop.java.download_cache import MissingToolError
from tests.interop.java.jars import spark_connector_jars
from tests.spark.settings import QUICK_CHECKPOINTS, settings

HERE = Path(__file__).parent
_numbers = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark's tests come first, so that they share one worker of pytest-xdist, and thus one JVM.

    Its scheduler `worksteal` gives the first half of all tests to the first worker, and an idle worker steals from the
    far end of the others' queues: it gets to these tests, and starts a JVM of its own for them, only if nothing else is
    left. `--dist loadgroup` would exclude even that, but it deals all other tests out one by one. That takes 2 ms more
    for each (17.6 s became 24.2 s for 3,616 quick ones), and every worker starts the brokers and JVMs of every folder.
    """
    items.sort(key=lambda item: HERE not in item.path.parents)


@pytest.fixture(autouse=True)
def quick_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the tests that start a JVM of their own."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", " ".join(QUICK_JAVA))


@pytest.fixture(scope="session", autouse=True)
def quick_python() -> Iterator[None]:
    """A home for Spark, of links, without the archive of PySpark's own modules.

    Spark puts the archive first in the path of every Python that it starts, and they all compile what they need of it
    anew, which takes a second of each. Without it they load the same modules from the package, compiled.
    """
    package = Path(pyspark.__file__).parent
    archive = package / "python" / "lib" / "pyspark.zip"
    with TemporaryDirectory(prefix="logbrook-spark-home-") as directory, pytest.MonkeyPatch.context() as patch:
        home = Path(directory)
        for path in (*package.iterdir(), *(package / "python").iterdir(), *(package / "python" / "lib").iterdir()):
            here = home / path.relative_to(package)
            if path in archive.parents:
                here.mkdir()
            elif path != archive:
                here.symlink_to(path)
        patch.setenv("SPARK_HOME", directory)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """`local[2]`, and whatever it writes goes when it goes.

    It is not below pytest's own directory, whose path is almost too long for the sockets between Spark and its workers.
    """
    with TemporaryDirectory(prefix="logbrook-spark-") as directory:
        conf = {**_connector(), **settings(directory), **QUICK_CHECKPOINTS}
        spark = session("logbrook-tests", master="local[2]", conf=conf)
        try:
            yield spark
        finally:
            stop(spark)


def _connector() -> dict[str, str]:
    """Spark's own Kafka connector, for the tests that compare with it; they skip without."""
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
    """One for all tests that do not stop it."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic that nobody has created yet, after the test's own name."""
    name = re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)[:200]
    return f"{name}-{next(_numbers)}"
