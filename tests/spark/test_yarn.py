"""The recipe of docs/SPARK.md for YARN, with a packed environment: a stream from a topic into a table."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from logbrook import Broker
from tests.interop.java.download_cache import MissingToolError
from tests.spark.yarn_cluster import JARS, pack_environment, running_yarn
from tests.unit.spark.tables.conftest import FRAME, TableUnderTest

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
COUNT = 1_000
# The environment is uploaded, and unpacked for each of two processes.
SUBMIT_S_MAX = 600.0
APPLICATION = """
import sys
from logbrook.spark import session

servers, topic, directory = sys.argv[1:]
spark = session("orders")
reading = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
rows = spark.readStream.format("logbrook").options(**reading).load()
writer = rows.selectExpr("offset AS id", "string(value) AS value").writeStream.format("logbrook_table")
writer = writer.option("checkpointLocation", f"file:{directory}/checkpoint").trigger(availableNow=True)
writer.start(f"{directory}/table").awaitTermination()
print("packages of", sys.prefix, "for", spark.sparkContext.master)
"""


@pytest.fixture(scope="module")
def yarn() -> Iterator[str]:
    try:
        with running_yarn() as settings:
            yield settings
    except MissingToolError as error:
        pytest.skip(f"NO YARN, SO NOTHING IS PROVEN WITH ONE: {error}")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "environment.tar.gz"
    try:
        pack_environment(path)
    except MissingToolError as error:
        pytest.skip(f"NO PACKED ENVIRONMENT, SO NOTHING IS PROVEN WITH YARN: {error}")
    return path


def test_a_driver_and_an_executor_on_yarn_use_a_packed_environment(
    yarn: str, archive: Path, broker: Broker, topic: str, tmp_path: Path
) -> None:
    broker.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(COUNT):
        producer.produce(topic, str(number).encode(), partition=number % 2)
    assert producer.flush(30) == 0
    application = tmp_path / "app.py"
    application.write_text(APPLICATION)
    python = "./environment/bin/python"
    command = [
        *(str(JARS.parent / "bin" / "spark-submit"), "--master", "yarn", "--deploy-mode", "cluster"),
        *("--archives", f"{archive}#environment"),
        *("--conf", f"spark.yarn.appMasterEnv.PYSPARK_PYTHON={python}"),
        # Not part of the recipe: the node has Spark's JARs at the same path, and little memory.
        *("--conf", f"spark.yarn.jars=local:{JARS}/*"),
        *("--driver-memory", "512m", "--executor-memory", "512m", "--num-executors", "1"),
        *(str(application), broker.bootstrap_servers, topic, str(tmp_path)),
    ]
    # The processes of the cluster must find Logbrook in the archive only.
    environment = {name: text for name, text in os.environ.items() if name not in {"PYTHONPATH", "SPARK_HOME"}}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**environment, "PYSPARK_PYTHON": python, "HADOOP_CONF_DIR": yarn, "SPARK_LOCAL_IP": "127.0.0.1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SUBMIT_S_MAX,
        check=False,
    )
    outputs = [path.read_text() for path in Path(yarn).rglob("stdout")]
    errors = "".join(path.read_text()[-3000:] for path in Path(yarn).rglob("stderr"))
    assert done.returncode == 0, f"{done.stderr[-3000:]}\n{errors}"
    table = TableUnderTest({"path": str(tmp_path / "table")}, FRAME)
    assert sorted(int(row["value"]) for row in table.rows()) == list(range(COUNT))
    (said,) = (line for output in outputs for line in output.splitlines() if line.startswith("packages of"))
    assert "/environment " in said
    assert said.endswith("for yarn")
