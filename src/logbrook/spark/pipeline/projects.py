"""`logbrook pipeline init`: an example that works as it is, written into a directory."""

import os
import stat
from pathlib import Path

from logbrook.spark.errors import SparkError

_TEMPLATES = Path(__file__).parent / "templates"
_STORAGE = "@STORAGE@"


class ProjectError(SparkError):
    """The example cannot be written there."""


def write_project(directory: str, *, declarative: bool = False) -> list[str]:
    """Write the files and return their paths. Raises ProjectError, before anything is written, if one is there."""
    templates = _TEMPLATES / ("declarative" if declarative else "toml")
    sources = sorted(path for path in templates.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    targets = {path: os.path.join(directory, path.relative_to(templates)) for path in sources}
    there = [target for target in targets.values() if os.path.lexists(target)]
    if there:
        raise ProjectError(f"{', '.join(there)} is there already, and nothing is overwritten")
    storage = Path(os.path.abspath(directory), "storage").as_uri()
    try:
        for path, target in targets.items():
            os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
            with open(target, "x", encoding="utf-8") as file:
                file.write(path.read_text("utf-8").replace(_STORAGE, storage))
            if path.suffix == ".sh":
                os.chmod(target, os.stat(target).st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    except OSError as error:
        raise ProjectError(f"{directory} cannot be written: {error.strerror or error}") from error
    return list(targets.values())
