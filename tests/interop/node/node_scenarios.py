"""kafkajs by npm, in the user's cache, and a Node process that runs its scenarios."""

import json
import os
import re
import select
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tests.interop.java.download_cache import MissingToolError, cache_directory, fetch, key_of, locked

HERE = Path(__file__).parent
SCENARIO_S_MAX = 60.0
_STOP_S_MAX = 10.0
_PACKAGE_FILES = ("package.json", "package-lock.json")
# The client writes such a line for each warning.
_COMPLAINT = re.compile(r"^(WARN|ERROR) .*$", re.MULTILINE)


def install_packages() -> Path:
    """Return the directory `node_modules` with the packages of the lock file. Raises MissingToolError."""
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
            # No package needs to be built, and install scripts are not run.
            fetch(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], new)
            new.rename(installed)
    return installed / "node_modules"


@dataclass(frozen=True)
class NodeRun:
    """The result of a scenario."""

    scenario: str
    code: int
    said: str

    def check(self, allowed: str = "") -> None:
        """Check that the scenario succeeded, and that all warnings match `allowed`."""
        assert self.code == 0, f"{self.scenario} ended with {self.code}\n{self.said}"
        complaints = [match[0] for match in _COMPLAINT.finditer(self.said)]
        assert [line for line in complaints if not allowed or not re.search(allowed, line)] == [], self.scenario


class NodeScenarios:
    """A Node process that runs scenarios one after the other. It is started by `run` if it does not run.

    Its session has all processes that the scenarios start, so that none of them outlives it.
    """

    def __init__(self, packages: Path) -> None:
        self.environment = {**os.environ, "NODE_PATH": str(packages), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, file: str, scenario: str, servers: str, timeout_s: float = SCENARIO_S_MAX) -> NodeRun:
        """Raises TimeoutError if the scenario does not end, and EOFError if its process does."""
        process = self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps([file, scenario, servers]).encode() + b"\n")
            process.stdin.flush()
            answer = json.loads(_read_line(process, timeout_s, scenario))
        except BaseException:
            self.stop()
            raise
        run = NodeRun(scenario, answer["code"], answer["said"])
        if run.code != 0:
            # It may have left clients or processes.
            self.stop()
        return run

    def stop(self) -> None:
        """Kill the process, if it runs, and all processes that its scenarios started."""
        process, self._process = self._process, None
        if process is None:
            return
        _kill_group(process.pid)
        process.wait(_STOP_S_MAX)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            self._process = subprocess.Popen(
                ["node", str(HERE / "scenarios.js")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self.environment,
                start_new_session=True,
            )
        return self._process


def _read_line(process: "subprocess.Popen[bytes]", timeout_s: float, scenario: str) -> bytes:
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    deadline = monotonic() + timeout_s
    line = b""
    while not line.endswith(b"\n"):
        if not poll.poll(1000 * max(0.0, deadline - monotonic())):
            raise TimeoutError(f"{scenario} did not end in {timeout_s:.0f} s")
        data = os.read(descriptor, 65_536)
        if not data:
            raise EOFError(f"node exited while it ran {scenario}")
        line += data
    return line


def _kill_group(number: int) -> None:
    try:
        os.killpg(number, signal.SIGKILL)
    except ProcessLookupError:
        return
