"""A Spark session that suits the data sources `logbrook` and `logbrook_table`.

Spark's own defaults work with them, but three are slow (docs/SPARK.md has the numbers): Arrow batches are weighed after
every row, filters stay in Spark, and records cross between Python and the JVM over TCP. `session` sets these three, and
`register` warns of what is slow or broken on a session that somebody else has built.
"""

import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from weakref import WeakKeyDictionary

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from logbrook.spark.java import use_java

ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
# Spark skips the weighing for exactly this value; batches are then bounded by their number of records.
ARROW_BYTES_UNLIMITED = "2147483647"
ARROW_BYTES_DEFAULT = "67108864b"
FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
TIME_ZONE = "spark.sql.session.timeZone"
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
MASTER = "spark.master"
PYTHON = "spark.pyspark.python"
DRIVER_PYTHON = "spark.pyspark.driver.python"

# What a session that is already running must have too; whoever calls `session` may ask for other values.
_SETTINGS = {
    ARROW_BYTES: ARROW_BYTES_UNLIMITED,
    FILTER_PUSHDOWN: "true",
    # The same records make the same hours and days on every machine.
    TIME_ZONE: "UTC",
}
# A socket's path has little more than a hundred characters, and Spark puts sockets with long names beside temporary
# files.
_TEMPORARY_LENGTH_MAX = 55
# These may change under a running session, because no result depends on them.
_HARMLESS = frozenset({ARROW_BYTES, FILTER_PUSHDOWN})
# What the sessions started here were asked for, because Spark rewrites some of it: paths, and options of Java.
_asked: WeakKeyDictionary[SparkSession, Mapping[str, str]] = WeakKeyDictionary()


class SparkSettingWarning(UserWarning):
    """A setting of a Spark session that makes Logbrook slow, or its data sources fail."""


def session(
    app_name: str = "logbrook",
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    ui: bool = False,
) -> SparkSession:
    """A session with both data sources registered, on `local[*]` unless another master is given. `conf` wins over ours.

    A process has one Spark. If one is running already it is used, and a SparkSettingWarning says what of it differs
    from what was asked for and can no longer be changed. Raises JavaError when there is no Java for Spark.
    """
    has_room = len(tempfile.gettempdir()) <= _TEMPORARY_LENGTH_MAX
    wanted = {**_SETTINGS, UNIX_SOCKETS: str(has_room).lower(), **(conf or {})}
    if master is not None:
        wanted.setdefault(MASTER, master)
    spark = _running()
    if spark is None:
        spark = _start(app_name, wanted, ui)
    else:
        _adapt(spark, wanted, _HARMLESS.union(conf or ()))
        _warn_of(_differences(spark, wanted))
    _register_sources(spark)
    _warn_of(_traps(spark))
    return spark


def register(spark: SparkSession) -> None:
    """Make the formats `logbrook` and `logbrook_table` known to `spark`, and warn of settings that hurt them."""
    _register_sources(spark)
    _warn_of(_traps(spark))


def _register_sources(spark: SparkSession) -> None:
    # They are imported when a session is there to use them, because they bring in numpy, numba and pyarrow.
    from logbrook.spark.source import LogbrookDataSource  # noqa: PLC0415
    from logbrook.spark.tables.source import TableDataSource  # noqa: PLC0415

    spark.dataSource.register(LogbrookDataSource)
    spark.dataSource.register(TableDataSource)


def _running() -> SparkSession | None:
    active = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:
        # A session is active in the thread that has made it; the others get it from a builder that asks for nothing.
        return SparkSession.builder.getOrCreate()
    return active


def _start(app_name: str, wanted: Mapping[str, str], ui: bool) -> SparkSession:
    settings = {
        MASTER: "local[*]",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        **wanted,
    }
    use_java()
    # Workers need the packages of this interpreter, and Spark would take the `python3` of the PATH. Its JVM reads the
    # environment, not the settings.
    os.environ["PYSPARK_PYTHON"] = settings.get(PYTHON, sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = settings.get(DRIVER_PYTHON, sys.executable)
    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # Logbrook does not use pandas; who does is warned of its version when they do.
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
        spark = builder.getOrCreate()
    _asked[spark] = settings
    return spark


def _adapt(spark: SparkSession, wanted: Mapping[str, str], changeable: frozenset[str]) -> None:
    for name in changeable & wanted.keys():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, wanted[name])


def _warn_of(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        # It is about the line that has called `session` or `register`.
        warnings.warn(sentence, SparkSettingWarning, stacklevel=3)


def _differences(spark: SparkSession, wanted: Mapping[str, str]) -> list[str]:
    """What a running session lacks, in one sentence, or none."""
    asked = _asked.get(spark, {})
    parts = []
    for name, value in wanted.items():
        found = _setting(spark, name)
        if found != value and (asked.get(name) != value or spark.conf.isModifiable(name)):
            parts.append(f"{name} is {found} instead of {value}")
    if not parts:
        return []
    return [
        f"the Spark session that is already running is used, though {', '.join(parts)}: "
        "stop it with spark.stop() before, to get what was asked for"
    ]


def _setting(spark: SparkSession, name: str) -> str:
    """The value in force. Asked with a default, Spark would answer with that instead of its own."""
    try:
        value = spark.conf.get(name) or "empty"
    except PySparkException:
        return "not set"
    # One zone under two names.
    return value.removeprefix("Etc/") if name == TIME_ZONE else value


def _traps(spark: SparkSession) -> list[str]:
    """A sentence for each setting in force that makes the data sources slow, or fail."""
    traps = []
    if _setting(spark, ARROW_BYTES) == ARROW_BYTES_DEFAULT:
        traps.append(
            "Spark weighs an Arrow batch after every row, which makes writes up to eleven times slower: "
            f"set {ARROW_BYTES} to {ARROW_BYTES_UNLIMITED}"
        )
    # A session of Spark Connect has no context, and its workers are the server's affair.
    context = getattr(spark, "sparkContext", None)
    if context is not None and not _is_this_python(context.pythonExec):
        traps.append(
            f"Spark runs its workers with {context.pythonExec}, which may not have Logbrook: "
            f"set the environment variable PYSPARK_PYTHON to {sys.executable} before Spark starts"
        )
    return traps


def _is_this_python(command: str) -> bool:
    """Whether `command` starts the interpreter of this environment, be it under another name (`python`, `python3`).

    Symbolic links are not followed between folders: a virtual environment's interpreter is often a link to the
    system's, which does not have its packages.
    """
    path = shutil.which(command)
    if path is None:
        return False
    same_folder = os.path.dirname(os.path.abspath(path)) == os.path.dirname(os.path.abspath(sys.executable))
    return same_folder and os.path.samefile(path, sys.executable)
