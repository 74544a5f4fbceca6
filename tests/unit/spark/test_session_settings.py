"""What a session is asked for, without a Spark that starts."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import logbrook.spark
from logbrook.spark import register, session, sessions
from logbrook.spark.sessions import ARROW_BYTES, FILTER_PUSHDOWN, TIME_ZONE, UNIX_SOCKETS


class FakeSpark:
    """Remembers what is registered and has the settings that it was built with."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings
        self.registered: list[type] = []
        self.conf = SimpleNamespace(get=settings.__getitem__)
        self.dataSource = SimpleNamespace(register=self.registered.append)
        self.sparkContext = SimpleNamespace(pythonExec=os.environ.get("PYSPARK_PYTHON", "python3"))


class FakeBuilder:
    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def appName(self, name: str) -> "FakeBuilder":  # noqa: N802 - Spark's name
        return self.config("spark.app.name", name)

    def config(self, name: str, value: str) -> "FakeBuilder":
        self.settings[name] = value
        return self

    def getOrCreate(self) -> FakeSpark:  # noqa: N802 - Spark's name
        return FakeSpark(self.settings)


class FakeSource:
    """Stands for a data source."""


class FakeTableSource:
    """Stands for the other."""


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    # `session` changes these two, and they have their old values after the test.
    monkeypatch.setenv("PYSPARK_PYTHON", "somebody-elses-python")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "somebody-elses-python")
    monkeypatch.setattr(sessions, "use_java", lambda: "/java")
    monkeypatch.setattr(sessions, "_running", lambda: None)
    monkeypatch.setattr(sessions, "SparkSession", SimpleNamespace(builder=FakeBuilder()))
    for module, name, source in (
        ("logbrook.spark.source", "LogbrookDataSource", FakeSource),
        ("logbrook.spark.tables.source", "TableDataSource", FakeTableSource),
    ):
        fake = ModuleType(module)
        setattr(fake, name, source)
        monkeypatch.setitem(sys.modules, module, fake)


def start(**arguments: Any) -> FakeSpark:
    spark: Any = session(**arguments)
    assert isinstance(spark, FakeSpark)
    return spark


def test_the_data_sources_get_what_they_need() -> None:
    settings = start().settings
    assert settings[ARROW_BYTES] == "2147483647"
    assert settings[FILTER_PUSHDOWN] == "true"
    assert settings[UNIX_SOCKETS] == "true"
    assert settings[TIME_ZONE] == "UTC"


def test_where_temporary_files_have_long_names_there_are_no_sockets_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/tmp/" + 80 * "x")
    assert start().settings[UNIX_SOCKETS] == "false"


def test_it_is_quiet_and_local_unless_asked() -> None:
    settings = start().settings
    assert settings["spark.master"] == "local[*]"
    assert settings["spark.app.name"] == "logbrook"
    assert settings["spark.log.level"] == "ERROR"
    assert settings["spark.ui.showConsoleProgress"] == "false"
    assert settings["spark.ui.enabled"] == "false"
    assert start(ui=True).settings["spark.ui.enabled"] == "true"


@pytest.mark.parametrize("master", ["local[3]", "local-cluster[2,1,1024]", "spark://127.0.0.1:7077", "yarn"])
def test_any_master_is_passed_on(master: str) -> None:
    assert start(master=master).settings["spark.master"] == master


def test_the_callers_settings_win() -> None:
    mine = {ARROW_BYTES: "1048576", TIME_ZONE: "Asia/Tokyo", "spark.log.level": "INFO", "spark.master": "local[5]"}
    settings = start(master="local[1]", conf=mine).settings
    assert {name: settings[name] for name in mine} == mine


def test_workers_are_given_this_interpreter() -> None:
    start()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_workers_are_given_the_callers_interpreter_if_there_is_one() -> None:
    with pytest.warns(sessions.SparkSettingWarning, match="with /elsewhere/python, which may not have Logbrook"):
        start(conf={"spark.pyspark.python": "/elsewhere/python"})
    assert os.environ["PYSPARK_PYTHON"] == "/elsewhere/python"
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_both_data_sources_are_registered() -> None:
    assert start().registered == [FakeSource, FakeTableSource]


def test_a_session_without_a_context_is_registered_with() -> None:
    spark: Any = start()
    spark.registered.clear()
    del spark.sparkContext
    register(spark)
    assert spark.registered == [FakeSource, FakeTableSource]


def test_the_same_interpreter_under_another_name_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in virtual environments, whose interpreters are links, to one another and to the system's."""
    system, ours = tmp_path / "system" / "python3", tmp_path / "venv" / "python"
    for path in (system, ours):
        path.parent.mkdir()
    system.write_text("")
    system.chmod(0o755)
    ours.symlink_to(system)
    ours.with_name("python3").symlink_to(ours)
    monkeypatch.setattr(sys, "executable", str(ours))
    assert sessions._is_this_python(str(ours.with_name("python3")))
    assert not sessions._is_this_python(str(system))
    assert not sessions._is_this_python("/nowhere/python")
    monkeypatch.setenv("PATH", str(ours.parent))
    assert sessions._is_this_python("python3")


def test_the_package_does_not_import_spark_before_it_is_asked_for() -> None:
    code = "import sys, logbrook.spark.errors, logbrook.spark.java; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_package_has_nothing_but_what_it_exports() -> None:
    assert sorted(logbrook.spark.__all__) == ["register", "session"]
    with pytest.raises(AttributeError, match="has no attribute 'sesion'"):
        logbrook.spark.sesion  # noqa: B018
