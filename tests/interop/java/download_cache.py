"""Cache of downloads from package registries: a directory of the user's, outside the tree, kept between runs."""

import fcntl
import hashlib
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DOWNLOAD_S_MAX = 400.0
_SAID_CHARACTERS_MAX = 300
_COLOURS = re.compile(r"\x1b\[\d*m")


class MissingToolError(Exception):
    """A tool is not installed, or a download failed."""


def cache_directory(name: str) -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    directory = Path(home) / "logbrook-tests" / name
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold a lock between processes: the others find the files that the first one fetched."""
    with (directory / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def key_of(*texts: str) -> str:
    """Return a name that is unique to this content."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def fetch(command: list[str], directory: Path) -> None:
    """Run a command that downloads. Raises MissingToolError with its first error message."""
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DOWNLOAD_S_MAX,
            check=False,
        )
    except FileNotFoundError:
        raise MissingToolError(f"there is no {command[0]} on this machine") from None
    except subprocess.TimeoutExpired:
        raise MissingToolError(f"{command[0]} did not end in {DOWNLOAD_S_MAX:.0f} s") from None
    if done.returncode != 0:
        lines = _COLOURS.sub("", done.stdout).splitlines()
        said = " ".join(line for line in lines if "error" in line.lower())[:_SAID_CHARACTERS_MAX]
        raise MissingToolError(f"{command[0]} failed: {said}")
