"""The Makefile installs what a target needs and no more. The commands are printed, not run."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Installing Spark takes minutes on a slow line, so a broker must not depend on it.
NEEDS = {
    "serve": ".",
    "demo": ".[spark]",
    "test": ".[dev]",
    "test-fast": ".[dev]",
    "check": ".[dev]",
    "bench": ".[dev]",
}


def installed_by(target: str, environment: Path) -> list[str]:
    command = ["make", "--dry-run", "--no-print-directory", target, f"VENV={environment}"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    return re.findall(r"pip install .* --editable '?([^'\s]+)'?$", printed, re.MULTILINE)


@pytest.mark.parametrize(("target", "needed"), NEEDS.items())
def test_a_target_installs_what_it_needs(target: str, needed: str, tmp_path: Path) -> None:
    assert installed_by(target, tmp_path) == [needed]


def test_the_development_environment_has_everything(tmp_path: Path) -> None:
    stamps = (".base", ".spark", ".ready")
    for stamp in stamps:
        (tmp_path / stamp).touch()
    assert {target: installed_by(target, tmp_path) for target in NEEDS} == {target: [] for target in NEEDS}
    printed = subprocess.run(
        ["make", "--dry-run", "test", f"VENV={tmp_path}/new"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert f"touch {tmp_path}/new/.base {tmp_path}/new/.spark {tmp_path}/new/.ready" in printed
