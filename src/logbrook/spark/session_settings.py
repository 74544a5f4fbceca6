"""Settings that `session` adds, and those of the user, which take precedence.

Spark's own precedence, highest first: settings in code, options of spark-submit, `spark-defaults.conf`, Spark's
defaults. `session` adds its settings between the last two: only those that are set nowhere else. A JVM started by
spark-submit knows its settings; for one that is still to be started, they are read from where its launcher takes them:
PYSPARK_SUBMIT_ARGS, the properties file and a few environment variables.

Settings added:

- Size of the Arrow batches that Spark sends to Python, in bytes and in rows. The limit in bytes bounds the memory for
  large values: a batch takes about five times its size outside the JVM's heap. To apply it, Spark computes the size of
  the batch before each row, and for a run of null arrays that takes time in proportion to the run's length. The limit
  in rows bounds it. The sinks gather batches again (`arrow_batches`).
- Filter pushdown, and the time zone UTC: hours and days must not depend on the machine's time zone.
- Unix sockets between the JVM and Python, in `/tmp`. Their paths are limited to about 100 characters, so they must not
  follow java.io.tmpdir, which may be long. On a local master they are in a directory there (`socket_directory`).
- In a JVM of our own: master `local[*]`, no UI, no console progress, log level ERROR.
- On a local master: a daemon for Python workers that imports what tasks need before it forks them (`worker_daemon`).
"""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise

from pyspark.find_spark_home import _find_spark_home

from logbrook.spark.socket_directory import own_socket_directory

ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
TIME_ZONE = "spark.sql.session.timeZone"
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
SOCKET_DIRECTORY = "spark.python.unix.domain.socket.dir"
DAEMON_MODULE = "spark.python.daemon.module"
MASTER = "spark.master"
APP_NAME = "spark.app.name"
LOG_LEVEL = "spark.log.level"
UI_ENABLED = "spark.ui.enabled"
CONSOLE_PROGRESS = "spark.ui.showConsoleProgress"

ARROW_BYTES_MAX = 16 << 20
ARROW_ROWS_MAX = 1_000
# Spark's defaults of these settings.
SPARK_DEFAULTS = {ARROW_BYTES: "67108864b", ARROW_ROWS: "10000", FILTER_PUSHDOWN: "false"}

# Needed by the data sources in every session.
SOURCE_SETTINGS = {
    ARROW_BYTES: str(ARROW_BYTES_MAX),
    ARROW_ROWS: str(ARROW_ROWS_MAX),
    FILTER_PUSHDOWN: "true",
    TIME_ZONE: "UTC",
}
_OWN_JVM_SETTINGS = {
    MASTER: "local[*]",
    APP_NAME: "logbrook",
    LOG_LEVEL: "ERROR",
    UI_ENABLED: "false",
    CONSOLE_PROGRESS: "false",
}
_DAEMON = "logbrook.spark.worker_daemon"
_SOCKET_FOLDER = "/tmp"
_SUBMIT_FLAGS = {"--master": MASTER, "--name": APP_NAME}
_FLAG_WITH_VALUE = re.compile(r"(--[a-z-]+)=(.+)", re.DOTALL)
_PROPERTY = re.compile(r"\s*([^#!\s=:][^\s=:]*)(?:\s*[=:]\s*|\s+)?(.*?)\s*")


def added_settings(given: Mapping[str, str], *, is_own_jvm: bool, is_this_python: bool) -> dict[str, str]:
    """Return the settings to add to those that the user has `given` anywhere.

    `is_own_jvm` is False in a JVM that spark-submit has started. `is_this_python` is True if workers run this
    interpreter, which has Logbrook installed.
    """
    settings = dict(SOURCE_SETTINGS)
    if is_own_jvm:
        settings |= _OWN_JVM_SETTINGS
    is_on_this_machine = is_local(given.get(MASTER, settings.get(MASTER, "")))
    if given.get(UNIX_SOCKETS, "true") == "true":
        # Executors on other machines do not have a directory that is created here.
        settings |= _socket_settings(has_own=is_on_this_machine and SOCKET_DIRECTORY not in given)
    if is_this_python and is_on_this_machine:
        settings[DAEMON_MODULE] = _DAEMON
    return {name: value for name, value in settings.items() if name not in given}


def is_local(master: str) -> bool:
    """Return True if the master runs its tasks in the driver's JVM."""
    return master == "local" or master.startswith("local[")


def settings_before_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that the user has given to a JVM that is started from here, by name."""
    settings = {}
    directory = environment.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    if os.path.exists(os.path.join(directory, "log4j2.properties")):
        settings[LOG_LEVEL] = ""
    if environment.get("MASTER"):
        settings[MASTER] = environment["MASTER"]
    if environment.get("PYSPARK_UDS_MODE"):
        settings[UNIX_SOCKETS] = environment["PYSPARK_UDS_MODE"]
    submitted = dict(_submit_options(environment.get("PYSPARK_SUBMIT_ARGS", "")))
    file = submitted.pop("--properties-file", os.path.join(directory, "spark-defaults.conf"))
    return settings | dict(_properties(file)) | submitted


def _socket_settings(*, has_own: bool) -> dict[str, str]:
    """Return the settings of Unix sockets, in a directory of this process if `has_own`."""
    if not os.access(_SOCKET_FOLDER, os.W_OK | os.X_OK):
        return {UNIX_SOCKETS: "false"}
    directory = own_socket_directory(_SOCKET_FOLDER) if has_own else None
    return {UNIX_SOCKETS: "true", SOCKET_DIRECTORY: directory or _SOCKET_FOLDER}


def _submit_options(arguments: str) -> Iterator[tuple[str, str]]:
    """Yield the settings in arguments of spark-submit, and its properties file as `--properties-file`."""
    words: list[str] = []
    for word in shlex.split(arguments):
        match = _FLAG_WITH_VALUE.fullmatch(word)
        words += match.groups() if match else [word]
    for flag, value in pairwise(words):
        if flag in ("--conf", "-c"):
            name, _, text = value.partition("=")
            yield name.strip(), text
        elif flag in _SUBMIT_FLAGS:
            yield _SUBMIT_FLAGS[flag], value
        elif flag == "--properties-file":
            yield flag, value


def _properties(path: str) -> Iterator[tuple[str, str]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        if match := _PROPERTY.fullmatch(line):
            yield match[1], match[2]
