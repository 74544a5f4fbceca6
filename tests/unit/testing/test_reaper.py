"""Processes and directories that outlive a test process are removed."""

import subprocess
import sys
from pathlib import Path
from signal import SIGKILL

from logbrook.testing.reaper import Reaper

WAIT = "import sys; sys.stdin.read()"


def test_an_unwatched_process_that_names_a_watched_directory_is_killed(tmp_path: Path) -> None:
    """The test process may be killed between the start of a process and the call that makes the reaper watch it."""
    directory = tmp_path / "watched"
    directory.mkdir()
    command = [sys.executable, "-c", WAIT, str(directory / "data")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        with Reaper() as reaper:
            reaper.watch_directory(str(directory))
        assert process.wait(10) == -SIGKILL
    assert not directory.exists()


def test_an_unwatched_process_that_has_a_file_of_a_watched_directory_open_is_killed(tmp_path: Path) -> None:
    """As it has between its fork and its exec, when it has the command line of the test process."""
    directory = tmp_path / "watched"
    directory.mkdir()
    command = [sys.executable, "-c", WAIT]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, start_new_session=True)
        with process:
            # This process has it open, too, and is kept.
            with Reaper() as reaper:
                reaper.watch_directory(str(directory))
            assert process.wait(10) == -SIGKILL
    assert not directory.exists()


def test_processes_that_name_other_directories_are_kept(tmp_path: Path) -> None:
    (tmp_path / "watched").mkdir()
    command = [sys.executable, "-c", WAIT, str(tmp_path / "other")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        with Reaper() as reaper:
            reaper.watch_directory(str(tmp_path / "watched"))
        assert process.poll() is None
        process.communicate(timeout=10)
        assert process.returncode == 0
