"""`logbrook table`: maintenance of real tables, without Spark and without a cluster."""

import json
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from typer.testing import CliRunner, Result

from logbrook.cli import table as command
from logbrook.spark.errors import TableChangedError
from logbrook.spark.tables import maintenance
from logbrook.spark.tables.format import TableOptions
from logbrook.spark.tables.source import StreamTableWriter

FRAME = from_arrow_schema(pa.schema({"id": pa.int64()}))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.app, list(arguments))


def write(path: Path, batch_id: int, table_format: str = "delta") -> None:
    options = {"path": str(path), "table.format": table_format, "app.id": "app"}
    writer = StreamTableWriter(TableOptions.parse(options), FRAME, overwrite=False)
    batch = pa.RecordBatch.from_pydict({"id": [batch_id]}, schema=pa.schema({"id": pa.int64()}))
    writer.commit([writer.write(iter([batch]))], batch_id)


@pytest.mark.parametrize("table_format", ["delta", "iceberg", "parquet"])
def test_files_are_merged_old_ones_deleted_and_all_commits_listed(tmp_path: Path, table_format: str) -> None:
    table = tmp_path / "table"
    for batch_id in range(3):
        write(table, batch_id, table_format)
    optimized = run("optimize", str(table))
    assert optimized.exit_code == 0, optimized.output
    assert "3 files became 1, " in optimized.output
    assert "3 rows" in optimized.output
    assert run("optimize", str(table)).output == "there is nothing to optimize\n"
    document = json.loads(run("optimize", str(table), "--json").output)
    assert document == {"files_removed": 0, "files_added": 0, "bytes_removed": 0, "bytes_added": 0, "rows": 0}

    listed = run("history", str(table), "-n", "2").output.splitlines()
    assert " ".join(listed[0].split()) == "VERSION TIME OPERATION ROWS + ROWS - FILES + FILES - WRITER BATCH"
    assert [line.split()[3:] for line in listed[1:]] == [
        ["optimize", "3", "3", "1", "3", "-", "-"],
        ["append", "1", "0", "1", "0", "app", "2"],
    ]
    commits = json.loads(run("history", str(table), "--json").output)
    assert [commit["batch_id"] for commit in commits if commit["operation"] == "append"] == [2, 1, 0]
    assert len({commit["version"] for commit in commits}) == len(commits)

    could = run("vacuum", str(table), "--older-than-days", "0")
    assert "could be deleted; --delete does it" in could.output
    deleted = json.loads(run("vacuum", str(table), "--older-than-days", "0", "--delete", "--json").output)
    assert deleted["deleted"] is True
    assert len([file for file in deleted["files"] if file.endswith(".parquet")]) == 3


@pytest.mark.parametrize("name", ["optimize", "vacuum", "history"])
def test_a_missing_table_and_a_wrong_option_are_named(tmp_path: Path, name: str) -> None:
    done = run(name, f"{tmp_path}/nothing")
    assert done.exit_code == 2
    assert "nothing': there is no such table" in done.output
    write(tmp_path / "table", 0)
    done = run(name, f"{tmp_path}/table", "-o", "partion.by=day")
    assert (done.exit_code, "did you mean 'partition.by'?" in done.output) == (2, True)
    done = run(name, f"{tmp_path}/table", "-o", "day")
    assert (done.exit_code, "--option: 'day' is not NAME=VALUE" in done.output) == (2, True)
    assert "Traceback" not in done.output


def test_another_writer_in_the_way_is_not_wrong_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def conflict(path: str, **_: object) -> None:
        raise TableChangedError(path, 2)

    monkeypatch.setattr(maintenance, "compact", conflict)
    done = run("optimize", f"{tmp_path}/table")
    assert done.exit_code == 4
    assert "2 files were removed by another writer during the compaction; try again" in done.output


def test_ctrl_c_ends_it_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(maintenance, "vacuum", interrupt)
    done = run("vacuum", f"{tmp_path}/table")
    assert (done.exit_code, done.output) == (130, "error: stopped\n")


def test_progress_counts_files(tmp_path: Path) -> None:
    for batch_id in range(3):
        write(tmp_path / "table", batch_id)
    reported: list[tuple[int, int]] = []
    maintenance.compact(str(tmp_path / "table"), on_progress=lambda files, of: reported.append((files, of)))
    assert reported == [(3, 3)]
    assert maintenance.vacuum(str(tmp_path / "table"), timedelta(days=1)).files == ()
