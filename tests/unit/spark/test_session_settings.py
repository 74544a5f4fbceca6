"""Settings of a session, without starting Spark."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import logbrook.spark
from logbrook.spark import register, session, session_settings, sessions
from logbrook.spark.session_settings import (
    ARROW_BYTES,
    ARROW_ROWS,
    DAEMON_MODULE,
    FILTER_PUSHDOWN,
    SOCKET_DIRECTORY,
    TIME_ZONE,
    UNIX_SOCKETS,
    settings_before_start,
)

USER_VARIABLES = ("MASTER", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "PYSPARK_UDS_MODE", "SPARK_CONF_DIR")


class FakeSpark:
    """Records registrations, and has the settings that it was built with."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings
        self.registered: list[type] = []
        self.conf = SimpleNamespace(
            get=lambda name: settings.get(name, "of Spark"), set=settings.__setitem__, getAll=settings
        )
        self.dataSource = SimpleNamespace(register=self.registered.append)
        self.sparkContext = SimpleNamespace(pythonExec=os.environ.get("PYSPARK_PYTHON", "python3"))


class FakeBuilder:
    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def config(self, name: str, value: str) -> "FakeBuilder":
        self.settings[name] = value
        return self

    def getOrCreate(self) -> FakeSpark:  # noqa: N802 - Spark's name
        return FakeSpark(self.settings)


class FakeSessions:
    """Stands for the class SparkSession."""

    @property
    def builder(self) -> FakeBuilder:
        return FakeBuilder()


class FakeSource:
    """Stands for a data source."""


class FakeTableSource:
    """Stands for the other."""


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    # `session` sets the first two; monkeypatch restores what it has deleted itself.
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", *USER_VARIABLES):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(sessions, "use_java", lambda: "/java")
    monkeypatch.setattr(sessions, "_running", lambda: None)
    monkeypatch.setattr(sessions, "SparkSession", FakeSessions())
    monkeypatch.setattr(sessions, "unpacked_home", lambda package: None)
    monkeypatch.setattr(sessions, "install_pruning", lambda spark: True)
    for module, name, source in (
        ("logbrook.spark.source", "LogbrookDataSource", FakeSource),
        ("logbrook.spark.tables.source", "table_source", lambda settings: FakeTableSource),
    ):
        fake = ModuleType(module)
        setattr(fake, name, source)
        monkeypatch.setitem(sys.modules, module, fake)


def start(**arguments: Any) -> FakeSpark:
    spark: Any = session(**arguments)
    assert isinstance(spark, FakeSpark)
    return spark


def test_the_data_sources_get_their_settings() -> None:
    settings = start().settings
    assert settings[ARROW_BYTES] == "16777216"
    assert settings[ARROW_ROWS] == "1000"
    assert settings[FILTER_PUSHDOWN] == "true"
    assert settings[TIME_ZONE] == "UTC"


def test_filters_are_not_pushed_down_if_spark_would_keep_them_for_other_queries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "install_pruning", lambda spark: False)
    assert start().settings[FILTER_PUSHDOWN] == "false"
    with pytest.warns(sessions.SparkSettingWarning, match=f"set {FILTER_PUSHDOWN} to false"):
        assert start(conf={FILTER_PUSHDOWN: "true"}).settings[FILTER_PUSHDOWN] == "true"


def test_unix_sockets_have_short_paths_wherever_temporary_files_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's default for them is java.io.tmpdir, which the user may have set in one of many places."""
    monkeypatch.setattr("tempfile.tempdir", "/tmp/" + 80 * "x")
    settings = start(conf={"spark.driver.extraJavaOptions": f"-Djava.io.tmpdir=/tmp/{80 * 'y'}"}).settings
    assert settings[UNIX_SOCKETS] == "true"
    assert re.fullmatch("/tmp/logbrook-sockets-[^/]{8}", settings[SOCKET_DIRECTORY])
    settings = start(master="spark://127.0.0.1:7077").settings
    assert settings[SOCKET_DIRECTORY] == "/tmp", "other machines have it, too"


def test_unix_sockets_are_off_without_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_settings, "_SOCKET_FOLDER", "/nowhere")
    settings = start().settings
    assert settings[UNIX_SOCKETS] == "false"
    assert SOCKET_DIRECTORY not in settings


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


def test_the_callers_sockets_are_left_alone() -> None:
    settings = start(conf={UNIX_SOCKETS: "false"}).settings
    assert settings[UNIX_SOCKETS] == "false"
    assert SOCKET_DIRECTORY not in settings
    assert start(conf={SOCKET_DIRECTORY: "/run/me"}).settings[SOCKET_DIRECTORY] == "/run/me"


def test_the_environment_and_the_defaults_file_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their settings are not passed on: Spark's launcher reads them there."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_UDS_MODE", "false")
    (tmp_path / "log4j2.properties").touch()
    (tmp_path / "spark-defaults.conf").write_text(
        f"# comment\n\n  spark.ui.enabled   true\n{ARROW_ROWS}=5\n{TIME_ZONE}: Asia/Tokyo\nspark.empty\n"
    )
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--master 'local[3]' --conf {ARROW_BYTES}=7 pyspark-shell")
    kept = {"spark.log.level", "spark.ui.enabled", ARROW_ROWS, TIME_ZONE, UNIX_SOCKETS, "spark.master", ARROW_BYTES}
    settings = start().settings
    assert not kept & settings.keys()
    assert settings[FILTER_PUSHDOWN] == "true"
    # Arguments are settings in code, which Spark lets win over all others.
    assert start(master="local[1]", ui=False).settings["spark.ui.enabled"] == "false"


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ("", {}),
        ("pyspark-shell", {}),
        ("--name mine --master yarn x.py", {"spark.app.name": "mine", "spark.master": "yarn"}),
        ("--master=yarn -c a=b --conf=c=d=e x.py", {"spark.master": "yarn", "a": "b", "c": "d=e"}),
        ("--conf 'a=b c' --driver-memory 2g", {"a": "b c"}),
        ("--properties-file @/mine.conf", {"a": "1"}),
    ],
)
def test_arguments_of_spark_submit_are_read(tmp_path: Path, arguments: str, settings: dict[str, str]) -> None:
    (tmp_path / "mine.conf").write_text("a 1\n")
    environment = {"PYSPARK_SUBMIT_ARGS": arguments.replace("@", str(tmp_path)), "SPARK_CONF_DIR": str(tmp_path)}
    assert settings_before_start(environment) == settings


def submit(monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    """Simulate spark-submit: this program runs with a JVM of these settings."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    names = {name.replace("_", "."): value for name, value in settings.items()}
    monkeypatch.setattr(sessions, "_submitted_settings", lambda: names)
    monkeypatch.setattr(sessions, "use_java", lambda: pytest.fail("its JVM is running already"))


def test_settings_of_spark_submit_win(monkeypatch: pytest.MonkeyPatch) -> None:
    submit(monkeypatch, spark_master="yarn", spark_app_name="job.py", spark_sql_session_timeZone="Asia/Tokyo")
    settings = start().settings
    assert settings == {
        ARROW_BYTES: "16777216",
        ARROW_ROWS: "1000",
        FILTER_PUSHDOWN: "true",
        UNIX_SOCKETS: "true",
        SOCKET_DIRECTORY: "/tmp",
    }


def test_a_master_in_the_code_of_a_submitted_program_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    submit(monkeypatch, spark_master="yarn")
    with pytest.warns(sessions.SparkSettingWarning, match=r"local\[2\] and overrides yarn") as warned:
        assert start(master="local[2]").settings["spark.master"] == "local[2]"
    assert warned[0].filename == __file__
    start(master="yarn")


@pytest.mark.parametrize(("master", "has_daemon"), [("local", True), ("local[2]", True), ("yarn", False)])
def test_workers_are_forked_by_our_daemon_on_this_machine_only(master: str, has_daemon: bool) -> None:
    assert (DAEMON_MODULE in start(master=master).settings) is has_daemon


def test_another_interpreter_has_its_own_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/bin/sh")
    with pytest.warns(sessions.SparkSettingWarning, match="with /bin/sh, which may not have Logbrook"):
        assert DAEMON_MODULE not in start().settings


def test_spark_is_started_from_a_home_without_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    homes: list[str | None] = []
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr(sessions, "unpacked_home", lambda package: "/unpacked")

    def create(self: FakeBuilder) -> FakeSpark:
        homes.append(os.environ.get("SPARK_HOME"))
        return FakeSpark(self.settings)

    monkeypatch.setattr(FakeBuilder, "getOrCreate", create)
    start()
    start(master="yarn")
    assert "SPARK_HOME" not in os.environ
    monkeypatch.setenv("SPARK_HOME", "/mine")
    start()
    assert homes == ["/unpacked", None, "/mine"]


def test_workers_are_given_this_interpreter() -> None:
    start()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_workers_are_given_the_callers_interpreter_if_there_is_one() -> None:
    with pytest.warns(sessions.SparkSettingWarning, match="with /elsewhere/python, which may not have Logbrook"):
        start(conf={"spark.pyspark.python": "/elsewhere/python"})
    assert os.environ["PYSPARK_PYTHON"] == "/elsewhere/python"
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_the_interpreter_in_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    with pytest.warns(sessions.SparkSettingWarning, match="with ./environment/bin/python"):
        start()
    assert os.environ["PYSPARK_PYTHON"] == "./environment/bin/python"


def test_both_data_sources_are_registered() -> None:
    assert start().registered == [FakeSource, FakeTableSource]


def test_a_session_without_a_context_is_registered_with() -> None:
    spark: Any = start()
    spark.registered.clear()
    del spark.sparkContext
    register(spark)
    assert spark.registered == [FakeSource, FakeTableSource]


def test_the_same_interpreter_under_another_name_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example in virtual environments, whose interpreters are links to each other and to the system's."""
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
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_the_package_has_only_its_exported_names() -> None:
    assert sorted(logbrook.spark.__all__) == ["register", "session"]
    with pytest.raises(AttributeError, match="has no attribute 'sesion'"):
        logbrook.spark.sesion  # noqa: B018
