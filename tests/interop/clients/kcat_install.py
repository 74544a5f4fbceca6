"""Finds kcat, or installs it with the system's package manager if that is permitted."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

_NAMES = ("kcat", "kafkacat")
_WAIT_FOR_OTHERS = ("-o", "DPkg::Lock::Timeout=60")
_INSTALL = ("apt-get", *_WAIT_FOR_OTHERS, "install", "--yes", "--quiet", "--no-install-recommends", "kcat")
_UPDATE = ("apt-get", "update", "--quiet")
_INSTALL_S_MAX = 120


class KcatMissingError(Exception):
    """kcat is missing; the message has the reason."""


def find_or_install_kcat() -> str:
    """Return the path of kcat. Raises KcatMissingError. Concurrent callers wait for the first."""
    # Any file that all processes can lock will do, and this one needs no clean-up.
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _find() or _install()


def _find() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def _install() -> str:
    if shutil.which("apt-get") is None:
        raise KcatMissingError("kcat is not installed, and there is no apt-get to install it with")
    if os.geteuid() != 0:
        raise KcatMissingError("kcat is not installed, and only root may: apt-get install kcat")
    failure = _run(_INSTALL)
    if failure is not None:
        _run(_UPDATE)
        failure = _run(_INSTALL)
    path = _find()
    if path is None:
        raise KcatMissingError(f"kcat is not installed, and apt-get could not install it: {failure}")
    return path


def _run(command: tuple[str, ...]) -> str | None:
    """Return the reason for a failure, or None."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_INSTALL_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.decode(errors="replace").strip()[-500:]
