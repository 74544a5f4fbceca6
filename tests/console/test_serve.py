"""`logbrook serve --console`: the console comes and goes with its broker."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from logbrook.cli.main import app
from logbrook.testing.kill.free_port import free_port
from tests.interop.waiting import wait_until


def test_the_console_ends_with_its_broker_however_that_ends(tmp_path: Path) -> None:
    # Both start at the same time, because that is what takes long.
    with serving(tmp_path / "stopped") as stopped, serving(tmp_path / "killed") as killed:
        for broker, how, code in ((stopped, signal.SIGTERM, 0), (killed, signal.SIGKILL, -signal.SIGKILL)):
            assert broker.stderr is not None
            lines = iter(broker.stderr.readline, "")
            url = next(found[0] for line in lines if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
            with urlopen(f"{url}/api/health", timeout=20) as answer:
                assert json.load(answer)["status"] == "ok"
            broker.send_signal(how)
            assert broker.wait(20) == code
            wait_until(lambda url=url: not answers(url), "the end of the console")  # type: ignore[misc]
            # Standard error is closed when the last of the two processes is gone.
            broker.stderr.read()


@contextmanager
def serving(data: Path) -> Iterator["subprocess.Popen[str]"]:
    """A broker with a console, which may not have started yet."""
    command = [sys.executable, "-m", "logbrook", "serve", "--data", str(data), "--listen", "127.0.0.1:0"]
    command += ["--metrics=", "--console", str(free_port())]
    broker = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert broker.stderr is not None
    try:
        yield broker
    finally:
        broker.kill()
        broker.wait()
        broker.stderr.close()


def test_a_broker_does_not_start_with_a_console_that_everybody_could_use(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "logbrook", "serve", "--data", str(tmp_path / "data"), "--console", "0.0.0.0:0"]
    environment = {**os.environ, "LOGBROOK_CONSOLE_TOKEN": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 1
    assert "others than this machine could ask the console" in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "listen"),
    [
        (["--console"], "127.0.0.1:9080"),
        (["--console", "--partitions", "3"], "127.0.0.1:9080"),
        (["--console", "8000"], "127.0.0.1:8000"),
        (["--console=[::1]:1"], "[::1]:1"),
        ([], ""),
    ],
)
def test_the_flag_alone_means_the_usual_address(arguments: list[str], listen: str) -> None:
    done = CliRunner().invoke(app, ["config", "show", "--json", *arguments])
    assert json.loads(done.stdout)["console.listen"]["value"] == listen


def answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/api/docs", timeout=5):
            return True
    except (URLError, OSError):
        return False
