"""A real cluster of two workers: tasks in other processes, which find the source by themselves."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import IO

import pytest
from confluent_kafka import Producer

from logbrook import Broker
from logbrook.client import Client
from logbrook.spark.java import use_java

START_S_MAX = 90.0
SCRIPT = """
import sys
from logbrook.spark import session
master, servers, topic, copy, directory = sys.argv[1:]
spark = session(master=master, conf={"spark.cores.max": "2", "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1", "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s"})
reading = {"kafka.bootstrap.servers": servers, "subscribe": topic}
rows = spark.read.format("logbrook").options(**reading).load()
print("batch", rows.count(), rows.selectExpr("sum(length(value))").first()[0])
stream = spark.readStream.format("logbrook").options(**reading, startingOffsets="earliest").load()
query = (stream.select("key", "value").writeStream.format("logbrook").trigger(availableNow=True)
    .options(**{"kafka.bootstrap.servers": servers, "topic": copy, "checkpointLocation": directory}).start())
query.awaitTermination()
print("executors", len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1)
spark.stop()
"""


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The URL of a master that two workers have registered with."""
    use_java()
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_NO_DAEMONIZE": "1",
    }
    spark_class = os.path.join(os.environ["SPARK_HOME"], "bin", "spark-class")
    with ExitStack() as stack:

        def start(*arguments: str) -> "Queue[str]":
            process = subprocess.Popen(
                [spark_class, *arguments], env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
            )
            lines: Queue[str] = Queue()
            assert process.stderr is not None
            reader = Thread(target=_pass_on, args=(process.stderr, lines), daemon=True)
            reader.start()
            stack.callback(process.stderr.close)
            stack.callback(reader.join, 20)
            stack.callback(process.wait, 20)
            stack.callback(process.terminate)
            return lines

        said = start("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        url = _found(said, r"Starting Spark master at (spark://\S+)")
        sizes = ("-c", "1", "-m", "1g", "--webui-port", "0")
        workers = [
            start("org.apache.spark.deploy.worker.Worker", *sizes, "-d", str(tmp_path / f"worker-{number}"), url)
            for number in range(2)
        ]
        for worker in workers:
            _found(worker, r"(Successfully registered with master)")
        yield url


def _pass_on(stream: IO[str], lines: "Queue[str]") -> None:
    for line in stream:
        lines.put(line)


def _found(lines: "Queue[str]", pattern: str) -> str:
    while True:
        found = re.search(pattern, lines.get(timeout=START_S_MAX))
        if found:
            return found[1]


def test_a_standalone_cluster_reads_and_writes(master: str, broker: Broker, topic: str, tmp_path: Path) -> None:
    copy = f"{topic}-copy"
    broker.create_topic(topic, 4)
    broker.create_topic(copy, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(1_000):
        producer.produce(topic, b"x" * (number % 100), key=str(number))
    assert producer.flush(30) == 0
    command = [
        sys.executable,
        "-c",
        SCRIPT,
        master,
        broker.bootstrap_servers,
        topic,
        copy,
        str(tmp_path / "checkpoint"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "batch 1000 49500" in done.stdout
    assert "executors 2" in done.stdout
    with Client(broker.bootstrap_servers) as client:
        assert sum(client.list_offset(copy, partition) for partition in range(2)) == 1_000
