"""`logbrook pipeline` run from a shell: a pipeline that runs until it is stopped, and a declarative project."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from confluent_kafka import Producer

from logbrook import Broker
from logbrook.cli.pipeline import write_project
from logbrook.client import Client
from logbrook.pipelines.report import REPORTS_TOPIC
from logbrook.pipelines.report_reader import ReportHistory, read_new_reports
from logbrook.testing.exactly_once.driver import QUICK_JAVA
from tests.processes import running
from tests.spark.limits import PROCESS_S_MAX

BIN = Path(sys.executable).parent
JAVA = " ".join(QUICK_JAVA)
ORDER = b'{"id": 1, "amount": 2.5, "at": "2026-01-01T00:00:00Z"}'


def send(broker: Broker, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def test_a_pipeline_runs_until_a_stop_signal(broker: Broker, topic: str, tmp_path: Path) -> None:
    broker.create_topic(topic)
    broker.create_topic(f"{topic}-copy")
    send(broker, topic, ORDER, ORDER)
    file = tmp_path / "p.toml"
    file.write_text(f"""\
name = "p"
bootstrap_servers = "{broker.bootstrap_servers}"
trigger = "200ms"
[spark]
master = "local[1]"
spark.driver.extraJavaOptions = "{JAVA}"
spark.driver.host = "127.0.0.1"
[sources.orders]
topic = "{topic}"
schema = "id BIGINT"
[sinks.copy]
view = "orders"
topic = "{topic}-copy"
""")
    environment = os.environ | {"TMPDIR": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [str(BIN / "logbrook"), "pipeline", "run", str(file)]
    pipe = subprocess.PIPE
    with running(command, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines: list[str] = []
        while not any("p-copy: batch 0, 2 rows in " in line for line in lines):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            lines.append(line)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    expected = [line.split(" ", 1)[1] for line in rest.splitlines()]
    assert expected[0] == "stopping; the batches in flight have 30 s to end"
    assert expected[-1] == "stopped"
    with Client(broker.bootstrap_servers) as client:
        said = [
            report
            for report in read_new_reports(client, REPORTS_TOPIC, ReportHistory()).reports["p"]
            if report.pid == process.pid
        ]
    assert (said[0].state, said[-1].state) == ("starting", "stopped")
    assert [(sink.name, sink.rows) for sink in said[-1].sinks] == [("p-copy", 2)]
    # Spark leaves no files behind, and its log is kept only after a failure.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "p.toml"]


@pytest.mark.long
def test_runs_of_a_declarative_project_process_new_records(broker: Broker, topic: str, tmp_path: Path) -> None:
    """Most of a run is the start of Spark and of its Hive catalog."""
    broker.create_topic(topic)
    send(broker, topic, ORDER, ORDER)
    project = tmp_path / "project"
    write_project(str(project), declarative=True)
    spec = project / "spark-pipeline.yml"
    text = spec.read_text().replace("127.0.0.1:9092", broker.bootstrap_servers)
    spec.write_text(text.replace('topic: "orders"', f'topic: "{topic}"'))
    assert broker.bootstrap_servers in spec.read_text()
    environment = os.environ | {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(tmp_path),
    }
    conf = (
        # Hive's tables are created in Derby without waiting for the disk.
        f"spark.driver.extraJavaOptions={JAVA} -Dderby.system.durability=test",
        "spark.sql.shuffle.partitions=2",
        "spark.ui.enabled=false",
    )
    for rows in (2, 3):
        done = subprocess.run(
            [project / "run.sh", *(argument for setting in conf for argument in ("--conf", setting))],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROCESS_S_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert ds.dataset(project / "spark-warehouse" / "orders", format="parquet").count_rows() == rows
        totals = ds.dataset(project / "spark-warehouse" / "totals", format="parquet").to_table().to_pylist()
        assert [(total["orders"], total["total"]) for total in totals] == [(rows, rows * 2.5)]
        # Without it the next run would not find the tables.
        assert (project / "metastore_db").is_dir()
        send(broker, topic, ORDER)
