"""SparkSession with the data sources `logbrook` and `logbrook_table` registered and the settings they need.

Spark's defaults work, but some are slow (docs/SPARK.md has the numbers). `session` adds better ones where the user has
set nothing, see `session_settings`; `register` warns of slow or broken settings of a session created elsewhere.
"""

import os
import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from logbrook.spark.java import use_java
from logbrook.spark.pruning import install_pruning
from logbrook.spark.session_settings import (
    APP_NAME,
    ARROW_BYTES,
    ARROW_ROWS,
    ARROW_ROWS_MAX,
    FILTER_PUSHDOWN,
    MASTER,
    SOURCE_SETTINGS,
    SPARK_DEFAULTS,
    TIME_ZONE,
    UI_ENABLED,
    added_settings,
    is_local,
    settings_before_start,
)
from logbrook.spark.spark_home import unpacked_home

PYTHON = "spark.pyspark.python"
DRIVER_PYTHON = "spark.pyspark.driver.python"
# For exactly this value Spark does not limit the bytes of a batch.
_ARROW_BYTES_UNLIMITED = "2147483647"
# May be changed on a running session: no result depends on them. So can FILTER_PUSHDOWN, with column pruning.
_CHANGEABLE = (ARROW_BYTES, ARROW_ROWS)
# Set by spark-submit in the environment of the Python program that it starts.
_GATEWAY_PORT = "PYSPARK_GATEWAY_PORT"
# Requested settings of the sessions started here: Spark rewrites some values, such as paths and Java options.
_requested: WeakKeyDictionary[SparkSession, Mapping[str, str]] = WeakKeyDictionary()


class SparkSettingWarning(UserWarning):
    """A setting of the Spark session makes the data sources slow or fail."""


def session(
    app_name: str | None = None,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    ui: bool | None = None,
) -> SparkSession:
    """Return a session with both data sources registered, on `local[*]` by default.

    The arguments have the precedence of settings in code, as in Spark: above those of spark-submit. What is set neither
    here nor by spark-submit, spark-defaults.conf or the environment has the values in `session_settings`.

    A process has one SparkContext. If one is running it is used, and a SparkSettingWarning lists the requested settings
    that it lacks and that can no longer be changed. Raises JavaError if there is no Java for Spark.
    """
    requested = dict(conf or {})
    if master is not None:
        requested.setdefault(MASTER, master)
    spark = _running()
    if spark is None:
        spark = _start(_start_settings(app_name, ui) | requested)
    else:
        _adapt(spark, requested)
        _warn(_differences(spark, {TIME_ZONE: SOURCE_SETTINGS[TIME_ZONE]} | requested))
    _activate(spark)
    _register_sources(spark)
    _warn(_harmful_settings(spark))
    return spark


def register(spark: SparkSession) -> None:
    """Register the formats `logbrook` and `logbrook_table`, and warn of settings that make them slow or fail.

    Call this or `session` in each new thread that uses the formats, see `_activate`.
    """
    _activate(spark)
    install_pruning(spark)
    _register_sources(spark)
    _warn(_harmful_settings(spark))


def _activate(spark: SparkSession) -> None:
    """Make the session the active one of this thread, if the thread has none.

    A session is active in the thread that has created it. Spark looks for data sources in Python only in the active
    session of the calling thread, and fails with DATA_SOURCE_NOT_FOUND in a thread without one.
    """
    java_session, jvm = getattr(spark, "_jsparkSession", None), getattr(spark, "_jvm", None)
    # A Spark Connect session is on the server, which has no such threads.
    if java_session is not None and jvm is not None:
        java_class = SparkSession._get_j_spark_session_class(jvm)
        if not java_class.getActiveSession().isDefined():
            java_class.setActiveSession(java_session)


def _register_sources(spark: SparkSession) -> None:
    # Imported late: they load PySpark's data source API and pyarrow.
    from logbrook.spark.source import LogbrookDataSource  # noqa: PLC0415
    from logbrook.spark.tables.hadoop_settings import session_settings  # noqa: PLC0415
    from logbrook.spark.tables.source import table_source  # noqa: PLC0415

    spark.dataSource.register(LogbrookDataSource)
    spark.dataSource.register(table_source(session_settings(spark)))


def _running() -> SparkSession | None:
    active = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:
        # A session is active only in the thread that created it; other threads get it from an empty builder.
        return SparkSession.builder.getOrCreate()
    return active


def _start_settings(app_name: str | None, ui: bool | None) -> dict[str, str]:
    """Return the arguments of `session` that matter only to a session that it starts."""
    settings = {}
    if app_name is not None:
        settings[APP_NAME] = app_name
    if ui is not None:
        settings[UI_ENABLED] = str(ui).lower()
    return settings


def _start(requested: dict[str, str]) -> SparkSession:
    is_own_jvm = _GATEWAY_PORT not in os.environ
    if is_own_jvm:
        use_java()
        user_settings = settings_before_start(os.environ)
    else:
        user_settings = _submitted_settings()
        _warn_of_another_master(requested, user_settings)
    given = user_settings | requested
    _use_python(given)
    is_this_python = _is_this_python(os.environ["PYSPARK_PYTHON"])
    added = added_settings(given, is_own_jvm=is_own_jvm, is_this_python=is_this_python)
    settings = added | requested
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    is_on_this_machine = is_own_jvm and is_this_python and is_local(given.get(MASTER, added.get(MASTER, "")))
    with warnings.catch_warnings(), _spark_home(is_on_this_machine):
        # Logbrook does not use pandas.
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
        spark = builder.getOrCreate()
    _requested[spark] = settings
    if not install_pruning(spark) and FILTER_PUSHDOWN in added:
        spark.conf.set(FILTER_PUSHDOWN, "false")
    return spark


def _submitted_settings() -> dict[str, str]:
    """Return the settings of the JVM that spark-submit has started."""
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _warn_of_another_master(requested: Mapping[str, str], submitted: Mapping[str, str]) -> None:
    master, submitted_master = requested.get(MASTER), submitted.get(MASTER)
    if master is not None and submitted_master not in (None, master):
        warnings.warn(
            f"the program asks for the master {master} and overrides {submitted_master}, which spark-submit was given: "
            "leave the master out of the program",
            SparkSettingWarning,
            stacklevel=4,
        )


def _use_python(given: Mapping[str, str]) -> None:
    """Choose the interpreter of the workers: the user's, else this one, which has the packages they need.

    The JVM and PySpark read these variables, not the settings. Spark's default is `python3` on the PATH.
    """
    for variable, setting in (("PYSPARK_PYTHON", PYTHON), ("PYSPARK_DRIVER_PYTHON", DRIVER_PYTHON)):
        os.environ[variable] = given.get(setting) or os.environ.get(variable) or sys.executable


@contextmanager
def _spark_home(is_on_this_machine: bool) -> Iterator[None]:
    """Start a JVM with a home from which Python processes start faster, unless SPARK_HOME names another."""
    home = None
    if is_on_this_machine and "SPARK_HOME" not in os.environ:
        home = unpacked_home(os.path.dirname(pyspark.__file__))
    if home is None:
        yield
        return
    os.environ["SPARK_HOME"] = home
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def _adapt(spark: SparkSession, requested: Mapping[str, str]) -> None:
    """Change the settings of a running session: those requested, and those of ours that the user has not set."""
    changeable = (*_CHANGEABLE, FILTER_PUSHDOWN) if install_pruning(spark) else _CHANGEABLE
    added = {name: SOURCE_SETTINGS[name] for name in changeable if not _is_set(spark, name)}
    for name, value in (added | dict(requested)).items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)


def _is_set(spark: SparkSession, name: str) -> bool:
    """Return True if the session has a value of its own instead of Spark's default."""
    java_session = getattr(spark, "_jsparkSession", None)
    if java_session is None:
        # A Spark Connect session does not tell.
        return _setting(spark, name) != SPARK_DEFAULTS[name]
    return bool(java_session.sessionState().conf().contains(name))


def _warn(messages: Iterable[str]) -> None:
    for message in messages:
        # The warning points at the caller of `session` or `register`.
        warnings.warn(message, SparkSettingWarning, stacklevel=3)


def _differences(spark: SparkSession, wanted: Mapping[str, str]) -> list[str]:
    """Return one message that lists the settings in which a running session differs from `wanted`, or none."""
    requested = _requested.get(spark, {})
    differences = []
    for name, value in wanted.items():
        actual = _setting(spark, name)
        if actual != value and (requested.get(name) != value or spark.conf.isModifiable(name)):
            differences.append(f"{name} is {actual} instead of {value}")
    if not differences:
        return []
    return [
        f"the Spark session that is already running is used, although {', '.join(differences)}: "
        "call spark.stop() first to get the requested settings"
    ]


def _setting(spark: SparkSession, name: str) -> str:
    """Return the value in force. conf.get with a default would hide Spark's own default."""
    try:
        value = spark.conf.get(name) or "empty"
    except PySparkException:
        return "not set"
    # Etc/UTC is UTC.
    return value.removeprefix("Etc/") if name == TIME_ZONE else value


def _harmful_settings(spark: SparkSession) -> list[str]:
    """Return a message for each setting in force that makes the data sources slow or fail."""
    messages = []
    if _setting(spark, ARROW_BYTES) == _ARROW_BYTES_UNLIMITED:
        messages.append(
            f"without a limit for the bytes of an Arrow batch, large values exhaust the memory: set {ARROW_BYTES} to "
            f"{SOURCE_SETTINGS[ARROW_BYTES]} and {ARROW_ROWS} to {ARROW_ROWS_MAX}"
        )
    elif _setting(spark, ARROW_ROWS) == SPARK_DEFAULTS[ARROW_ROWS]:
        messages.append(
            "Spark computes the size of an Arrow batch before every row, which makes writes of null arrays, such as "
            f"headers, up to eleven times slower: set {ARROW_ROWS} to {ARROW_ROWS_MAX}"
        )
    if _setting(spark, FILTER_PUSHDOWN) == "true" and not install_pruning(spark):
        messages.append(
            "with filter pushdown, Spark applies the filter of a query to later queries of the same DataFrame, and "
            f"that cannot be prevented in this session: set {FILTER_PUSHDOWN} to false"
        )
    # A Spark Connect session has no context; its workers belong to the server.
    context = getattr(spark, "sparkContext", None)
    if context is not None and not _is_this_python(context.pythonExec):
        messages.append(
            f"Spark runs its workers with {context.pythonExec}, which may not have Logbrook: "
            f"set the environment variable PYSPARK_PYTHON to {sys.executable} before Spark starts"
        )
    return messages


def _is_this_python(command: str) -> bool:
    """Return True if `command` starts this environment's interpreter, possibly by another name (`python`, `python3`).

    Links between directories are not followed: a virtual environment's interpreter is often a link to the system's,
    which lacks its packages.
    """
    path = shutil.which(command)
    if path is None:
        return False
    same_folder = os.path.dirname(os.path.abspath(path)) == os.path.dirname(os.path.abspath(sys.executable))
    return same_folder and os.path.samefile(path, sys.executable)
