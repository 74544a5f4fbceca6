"""Directories of the sockets between Spark and its Python processes: removed with their driver, or after it."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

from logbrook.spark.socket_directory import own_socket_directory, remove_abandoned

DRIVER = """
import os, signal, sys
from logbrook.spark.socket_directory import own_socket_directory
directory = own_socket_directory(sys.argv[1])
open(directory + "/.a.sock", "x").close()
print(directory)
if sys.argv[2:]:
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
PROCESS_S_MAX = 60.0


def run_driver(parent: Path, *arguments: str) -> tuple[int, Path]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", DRIVER, str(parent), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PROCESS_S_MAX, check=False)
    return done.returncode, Path(done.stdout.strip())


def test_a_process_has_one_directory_that_others_cannot_read(tmp_path: Path) -> None:
    directory = own_socket_directory(str(tmp_path))
    assert directory is not None
    assert own_socket_directory(str(tmp_path)) == directory
    assert os.stat(directory).st_mode & 0o777 == 0o700
    # Spark adds a UUID and .sock, and the limit of the whole path is 104.
    assert len(os.path.basename(directory)) <= 30
    remove_abandoned(str(tmp_path))
    assert os.path.isdir(directory), "its process runs"


def test_a_driver_removes_its_directory_at_its_end_and_that_of_a_killed_one_at_the_next_start(tmp_path: Path) -> None:
    code, directory = run_driver(tmp_path)
    assert (code, directory.exists()) == (0, False)
    code, directory = run_driver(tmp_path, "killed")
    assert (code, directory.exists()) == (-signal.SIGKILL, True)
    assert own_socket_directory(str(tmp_path)) is not None
    assert not directory.exists()


def test_only_directories_with_a_free_lock_are_removed(tmp_path: Path) -> None:
    begun, running, ended, other = (
        tmp_path / name for name in ("logbrook-sockets-1", "logbrook-sockets-2", "logbrook-sockets-3", "other-4")
    )
    for directory in (begun, running, ended, other):
        directory.mkdir()
        if directory is not begun:
            (directory / "lock").touch()
    with (running / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (ended / ".b.sock").touch()
        remove_abandoned(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {begun.name, running.name, other.name}


def test_without_a_parent_directory_there_is_no_socket_directory(tmp_path: Path) -> None:
    assert own_socket_directory(str(tmp_path / "missing")) is None
