"""A cluster of two executors: tasks in other processes, which find the source by themselves; and a Connect client."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from logbrook import Broker
from logbrook.client import Client
from logbrook.testing.exactly_once.driver import QUICK_JAVA
from logbrook.testing.processes import free_port
from tests.spark.limits import PROCESS_S_MAX

SCRIPT = """
import subprocess, sys
from logbrook.spark import session
servers, topic, copy, java, port, client = sys.argv[1:]
spark = session(master="local-cluster[2,1,512]", conf={"spark.driver.extraJavaOptions": java,
    "spark.executor.extraJavaOptions": java, "spark.executor.memory": "512m", "spark.cores.max": "2",
    "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": "warehouse",
    "spark.scheduler.minRegisteredResourcesRatio": "1", "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": port})
reading = {"kafka.bootstrap.servers": servers, "subscribe": topic}
rows = spark.read.format("logbrook").options(**reading).load()
print("batch", *rows.selectExpr("count(*)", "sum(length(value))").first())
stream = spark.readStream.format("logbrook").options(**reading, startingOffsets="earliest").load()
query = (stream.select("key", "value").writeStream.format("logbrook").trigger(availableNow=True)
    .options(**{"kafka.bootstrap.servers": servers, "topic": copy, "checkpointLocation": "checkpoint"}).start())
print("ended", query.awaitTermination(120))
print("executors", len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1, flush=True)
subprocess.run([sys.executable, "-c", client, port, servers, topic, copy], check=True, timeout=200)
spark.stop()
"""
# A client of Spark Connect has no JVM: the server plans, and needs the package, too.
CLIENT = """
import sys
from pyspark.sql import SparkSession
from logbrook.spark import register
port, servers, topic, copy = sys.argv[1:]
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
register(spark)
reading = {"kafka.bootstrap.servers": servers, "subscribe": topic}
rows = spark.read.format("logbrook").options(**reading).load()
print("connected", *rows.selectExpr("count(*)", "sum(length(value))").first())
stream = spark.readStream.format("logbrook").options(**reading, startingOffsets="earliest").load()
query = (stream.select("key", "value").writeStream.format("logbrook").trigger(availableNow=True)
    .options(**{"kafka.bootstrap.servers": servers, "topic": copy, "checkpointLocation": "connected"}).start())
print("streamed", query.awaitTermination(120))
"""


@pytest.mark.long
@pytest.mark.skipif(
    shutil.which("java") is None, reason="NO INSTALLED JAVA, SO NOTHING IS PROVEN FOR CLUSTERS OF SPARK"
)
def test_a_cluster_and_its_connect_clients_read_and_write(broker: Broker, topic: str, tmp_path: Path) -> None:
    """Spark starts its master and workers in the driver's JVM, and the executors as a standalone cluster does."""
    copy, port = f"{topic}-copy", str(free_port())
    broker.create_topic(topic, 4)
    broker.create_topic(copy, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(1_000):
        producer.produce(topic, b"x" * (number % 100), key=str(number))
    assert producer.flush(30) == 0
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, broker.bootstrap_servers, topic, copy, " ".join(QUICK_JAVA), port, CLIENT],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROCESS_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    printed = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert (printed["batch"], printed["ended"], printed["executors"]) == ("1000 49500", "True", "2")
    assert (printed["connected"], printed["streamed"]) == ("1000 49500", "True")
    with Client(broker.bootstrap_servers) as client:
        assert sum(client.list_offset(copy, partition) for partition in range(2)) == 2_000
