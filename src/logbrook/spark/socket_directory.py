"""Directories for the Unix sockets between a JVM and its Python processes, one for each driver.

Spark does not delete its sockets when the driver is killed. A driver on a local master therefore has a directory of its
own, which it removes when it exits, and every driver first removes the directories of those that were killed. It can
tell them apart by a lock on a file in the directory, which the kernel releases with the process that holds it.
"""

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from functools import cache

_PREFIX = "logbrook-sockets-"
_LOCK = "lock"


def own_socket_directory(parent: str) -> str | None:
    """Return the directory of this process below `parent`, created by the first call; None if it cannot be."""
    return _create(parent, os.getpid())


@cache
def _create(parent: str, process_id: int) -> str | None:
    try:
        remove_abandoned(parent)
        directory = None
        while directory is None:
            directory = _locked_directory(parent)
    except OSError:
        return None
    atexit.register(_remove_own, directory, process_id)
    return directory


def _locked_directory(parent: str) -> str | None:
    """Create a directory and lock it until this process ends. Returns None if another one has removed it meanwhile."""
    directory = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
    path = os.path.join(directory, _LOCK)
    lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # Between these calls the file looked like that of a killed driver.
    if os.path.exists(path):
        return directory
    os.close(lock)
    return None


def _remove_own(directory: str, process_id: int) -> None:
    # A forked process must not remove the directory of its parent.
    if os.getpid() == process_id:
        shutil.rmtree(directory, ignore_errors=True)


def remove_abandoned(parent: str) -> None:
    """Remove the directories that drivers of this user have left in `parent`. Raises OSError if it cannot be listed."""
    for name in os.listdir(parent):
        directory = os.path.join(parent, name)
        if name.startswith(_PREFIX) and _is_own_directory(directory):
            # Without a lock, the driver that creates it has only begun.
            with suppress(OSError):
                _remove_unlocked(directory)


def _remove_unlocked(directory: str) -> None:
    """Remove a directory whose driver has ended. Raises BlockingIOError if it has not."""
    lock = os.open(os.path.join(directory, _LOCK), os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(lock)


def _is_own_directory(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
