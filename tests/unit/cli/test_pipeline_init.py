"""`logbrook pipeline init`: what it writes, and that it overwrites nothing."""

import os
from pathlib import Path

import pytest
import typer

from logbrook.cli.failures import WRONG_USAGE
from logbrook.cli.pipeline import write_project
from logbrook.spark.pipeline.file import read_pipeline


def test_the_example_is_a_pipeline(tmp_path: Path) -> None:
    written = write_project(str(tmp_path / "new"))
    assert written == [f"{tmp_path}/new/README.md", f"{tmp_path}/new/orders.toml"]
    pipeline = read_pipeline(written[1])
    assert [sink.name for sink in pipeline.sinks] == ["totals", "archive"]


def test_the_declarative_example_keeps_its_progress_beside_itself(tmp_path: Path) -> None:
    written = write_project(str(tmp_path / "new"), declarative=True)
    names = [os.path.relpath(path, tmp_path / "new") for path in written]
    assert names == ["README.md", "run.sh", "spark-pipeline.yml", "transformations/orders.py"]
    spec = (tmp_path / "new" / "spark-pipeline.yml").read_text()
    assert f'storage: "file://{tmp_path}/new/storage"\n' in spec
    assert os.access(written[1], os.X_OK)


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "orders.toml").write_text("mine")
    with pytest.raises(typer.Exit) as exit_of_command:
        write_project(str(tmp_path))
    assert exit_of_command.value.exit_code == WRONG_USAGE
    assert capsys.readouterr().err == f"error: {tmp_path}/orders.toml already exists; nothing was written\n"
    assert [path.name for path in tmp_path.iterdir()] == ["orders.toml"]
    assert (tmp_path / "orders.toml").read_text() == "mine"


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(typer.Exit):
        write_project(str(tmp_path / "file" / "x"))
    assert "file/x cannot be written: Not a directory" in capsys.readouterr().err
