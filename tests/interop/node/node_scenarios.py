"""kafkajs by npm, in the user's cache, and its scenarios in processes of their own."""

import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.interop.java.download_cache import MissingToolError, cache_directory, fetch, key_of, locked

HERE = Path(__file__).parent
SCENARIO_S_MAX = 60.0
_PACKAGE_FILES = ("package.json", "package-lock.json")
# The client writes one such line for each complaint.
_COMPLAINT = re.compile(r"^(WARN|ERROR) .*$", re.MULTILINE)


def install_packages() -> Path:
    """The directory `node_modules` with what the lock file names. Raises MissingToolError."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            raise MissingToolError(f"there is no {tool} on this machine")
    directory = cache_directory("node")
    installed = directory / key_of(*((HERE / name).read_text() for name in _PACKAGE_FILES))
    with locked(directory):
        if not installed.exists():
            new = Path(f"{installed}.new")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            for name in _PACKAGE_FILES:
                shutil.copy(HERE / name, new)
            # Nothing in it needs to be built, and nothing in it is run before the tests run it.
            fetch(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], new)
            new.rename(installed)
    return installed / "node_modules"


@dataclass(frozen=True)
class NodeRun:
    """How a scenario ended."""

    scenario: str
    code: int
    said: str

    def check(self, allowed: str = "") -> None:
        """It went well, and the client complained of nothing but what matches `allowed`."""
        assert self.code == 0, f"{self.scenario} ended with {self.code}\n{self.said}"
        complaints = [match[0] for match in _COMPLAINT.finditer(self.said)]
        assert [line for line in complaints if not allowed or not re.search(allowed, line)] == [], self.scenario


class NodeScenarios:
    """Runs scenarios, with all of their processes gone afterwards."""

    def __init__(self, packages: Path) -> None:
        self._environment = {**os.environ, "NODE_PATH": str(packages), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}

    def run(self, file: str, scenario: str, servers: str, timeout_s: float = SCENARIO_S_MAX) -> NodeRun:
        """Raises subprocess.TimeoutExpired with what it said."""
        process = subprocess.Popen(
            ["node", str(HERE / "scenarios.js"), file, scenario, servers],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
            start_new_session=True,
        )
        with process:
            try:
                said, _ = process.communicate(timeout=timeout_s)
            finally:
                # A scenario starts processes of its own, and may die before they do.
                _kill_group(process.pid)
        return NodeRun(scenario, process.returncode, said)


def _kill_group(number: int) -> None:
    try:
        os.killpg(number, signal.SIGKILL)
    except ProcessLookupError:
        return
