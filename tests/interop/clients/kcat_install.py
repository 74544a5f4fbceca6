"""Finds kcat, or installs it where the system's package manager has it and we may ask for that."""

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
    """It says why there is none."""


def find_or_install_kcat() -> str:
    """The path of kcat. Raises KcatMissingError. Those who ask at the same time wait for the first."""
    # Any file that all of them have will do, and this one nobody has to remove.
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
    """Why it failed, or None."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_INSTALL_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.decode(errors="replace").strip()[-500:]
