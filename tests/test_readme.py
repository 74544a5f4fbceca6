"""The README's commands, in order, as printed, except for those that install or need Spark."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from logbrook.testing.processes import free_port
from tests.unit.server.shell_kit import until

README = (Path(__file__).parents[1] / "README.md").read_text()
SECTIONS = ("Two commands", "A broker in your tests", "Five minutes")
# Covered by the installation of the test environment.
INSTALLS = ("pip install",)
TIMEOUT_S = 60


def blocks(section: str, language: str) -> list[str]:
    text = README.split(f"## {section}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands(section: str) -> list[str]:
    lines = [line for block in blocks(section, "console") for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines), "a README shows commands, not what they print"
    return [line.removeprefix("$ ").split("  #")[0].strip() for line in lines]


@dataclass
class Clone:
    """The directory of a new user, and the broker that the README starts."""

    directory: Path
    port: int
    metrics_port: int

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "XDG_CONFIG_HOME": str(self.directory / "config"),
            "LOGBROOK_LISTEN": f"127.0.0.1:{self.port}",
            "LOGBROOK_METRICS": f"127.0.0.1:{self.metrics_port}",
            "LOGBROOK_BOOTSTRAP": f"127.0.0.1:{self.port}",
        }

    def as_here(self, text: str) -> str:
        """Return the text with its ports replaced by free ones."""
        return text.replace("127.0.0.1:9092", f"127.0.0.1:{self.port}").replace(":9644", f":{self.metrics_port}")

    def start(self, command: str) -> "subprocess.Popen[bytes]":
        with (self.directory / "serve.log").open("wb") as log:
            return subprocess.Popen(
                command.split(), cwd=self.directory, env=self.environment, stdout=subprocess.DEVNULL, stderr=log
            )

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", self.as_here(command)],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def run_python(self, code: str) -> str:
        path = self.directory / "snippet.py"
        path.write_text(self.as_here(code))
        return self.run(f"{sys.executable} {path}")


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Clone]:
    clone = Clone(tmp_path, free_port(), free_port())
    serve = next(command for command in commands("Two commands") if command.startswith("logbrook serve"))
    broker = clone.start(serve)
    try:
        until(lambda: "broker started" in (tmp_path / "serve.log").read_text() or broker.poll() is not None)
        assert broker.poll() is None, (tmp_path / "serve.log").read_text()
        yield clone
        broker.terminate()
        assert broker.wait(TIMEOUT_S) == 0
    finally:
        broker.kill()


def test_the_commands_work_as_printed(clone: Clone) -> None:
    for code in blocks("Two commands", "python"):
        clone.run_python(code)
    printed = {}
    for command in commands("Five minutes"):
        printed[command.split("|")[-1].strip()] = clone.run(command)
    consumed = printed["logbrook consume payments --from start --count 2"]
    assert sorted(consumed.splitlines()) == ["a tea", "two coffees"]
    assert "payments" in printed["logbrook top --once"]


def test_the_snippets_for_tests_work_as_printed(clone: Clone) -> None:
    in_a_program, in_a_test = blocks("A broker in your tests", "python")
    assert clone.run_python(in_a_program).startswith("127.0.0.1:")
    (clone.directory / "test_orders.py").write_text(in_a_test)
    clone.run(f"{sys.executable} -m pytest -q -p no:cacheprovider test_orders.py")


def test_every_other_command_is_known() -> None:
    every = re.findall(r"^\$ (.*)$", README, re.MULTILINE)
    known = [command for section in SECTIONS for command in commands(section)]
    others = [line.split("  #")[0].strip() for line in every if line.split("  #")[0].strip() not in known]
    heads = {" ".join(command.split()[:2]) for command in others}
    assert heads <= {"pip install", "make demo", "logbrook pipeline", "logbrook archive", "logbrook audit"}
