"""Compaction keeps the rows, and the clean-up removes what no commit needs."""

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from logbrook.spark.errors import CommitUnknownError, TableError
from logbrook.spark.tables import maintenance
from logbrook.spark.tables.format import DataFile
from logbrook.spark.tables.maintenance import CompactResult, compact, compaction_groups, vacuum

MakeTable = Callable[..., Any]
NOW = timedelta(0)


def row(number: int, day: str = "monday") -> dict[str, Any]:
    return {"id": number, "day": day, "note": None}


def test_small_files_become_one_in_each_partition(make_table: MakeTable) -> None:
    table = make_table(partition_by="day")
    for number in range(3):
        rows = [row(number), row(number + 10, "tuesday")]
        table.append(rows, app_id="app", batch_id=number, offsets={"t": {0: number}})
    before = table.rows()
    result = compact(table.path)
    assert (result.files_removed, result.files_added, result.rows) == (6, 2, 6)
    assert table.rows() == before
    assert len(table.version.data_files()) == 2
    # Nothing that writers rely on is removed, and nothing is left to do.
    assert table.version.batch_id_of("app") == 2
    assert table.version.properties()["logbrook.offsets"] == '{"t": {"0": 2}}'
    assert compact(table.path) == CompactResult()
    table.append([row(5)], app_id="app", batch_id=3)
    assert len(table.rows()) == 7


def test_a_compaction_does_not_restore_overwritten_records(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table()
    table.append([row(1)])
    table.append([row(2)])
    rewrite = maintenance._rewrite

    def overwritten_meanwhile(*args: Any) -> list[DataFile]:
        added = rewrite(*args)
        table.append([row(3)], overwrite=True)
        return added

    monkeypatch.setattr(maintenance, "_rewrite", overwritten_meanwhile)
    with pytest.raises(TableError, match="2 files were removed by another writer during the compaction"):
        compact(table.path)
    assert table.rows() == [row(3)]


def test_a_compaction_continues_during_an_append(make_table: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table()
    table.append([row(1)])
    table.append([row(2)])
    rewrite = maintenance._rewrite

    def appended_meanwhile(*args: Any) -> list[DataFile]:
        added = rewrite(*args)
        table.append([row(3)])
        return added

    monkeypatch.setattr(maintenance, "_rewrite", appended_meanwhile)
    assert compact(table.path).files_added == 1
    assert table.rows() == [row(1), row(2), row(3)]
    assert len(table.version.data_files()) == 2


def test_a_compaction_whose_answer_is_lost_keeps_its_files(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table()
    table.append([row(1)])
    table.append([row(2)])
    version_type = type(table.version)
    commit = version_type.commit

    def commit_and_lose_the_answer(version: Any, change: Any) -> None:
        commit(version, change)
        raise CommitUnknownError(table.path, "the answer was lost")

    monkeypatch.setattr(version_type, "commit", commit_and_lose_the_answer)
    assert compact(table.path).files_added == 1
    assert table.rows() == [row(1), row(2)]


def test_orphans_are_named_first_and_deleted_then(make_table: MakeTable) -> None:
    table = make_table(partition_by="day")
    table.append([row(1)], app_id="app", batch_id=0)
    orphans = {file.path for file in table.write_files([row(2), row(3, "tuesday")])}
    named = vacuum(table.path, NOW)
    assert (set(named.files), named.deleted) == (orphans, False)
    assert named.size_bytes == sum(os.path.getsize(path) for path in orphans)
    assert orphans <= table.on_disk()
    assert set(vacuum(table.path, NOW, dry_run=False).files) == orphans
    assert not orphans & table.on_disk()
    assert table.rows() == [row(1)]


def test_compacted_files_are_deleted_after_the_retention(make_table: MakeTable) -> None:
    table = make_table()
    for number in range(3):
        table.append([row(number)], app_id="app", batch_id=number, offsets={"t": {0: number}})
    before, old = table.rows(), {file.path for file in table.version.data_files()}
    compact(table.path)
    # The files look old, but they were part of the table a moment ago.
    for path in old:
        os.utime(path, times=(0, 0))
    assert not old & set(vacuum(table.path, timedelta(hours=1), dry_run=False).files)
    result = vacuum(table.path, NOW, dry_run=False)
    assert old <= set(result.files)
    assert not old & table.on_disk()
    assert table.rows() == before
    assert table.version.batch_id_of("app") == 2
    assert table.version.properties()["logbrook.offsets"] == '{"t": {"0": 2}}'
    assert vacuum(table.path, NOW).files == ()


def test_a_file_that_is_being_written_is_left_alone(make_table: MakeTable) -> None:
    table = make_table()
    table.append([row(1)])
    young, old = (table.write_files([row(number)])[0].path for number in (2, 3))
    eight_days_ago = time.time() - 8 * 24 * 3600
    os.utime(old, times=(eight_days_ago, eight_days_ago))
    assert vacuum(table.path, dry_run=False).files == (old,)
    assert young in table.on_disk()


def test_a_table_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="there is no such table"):
        compact(str(tmp_path / "nothing"))
    with pytest.raises(TableError, match="there is no such table"):
        vacuum(str(tmp_path / "nothing"))


def test_groups_are_as_large_as_a_file_should_be() -> None:
    def file(name: str, size_bytes: int, day: str = "monday") -> DataFile:
        return DataFile(name, size_bytes, 1, {"day": day})

    files = [file("a", 40), file("b", 50), file("c", 60), file("d", 80), file("e", 10, "tuesday")]
    groups = [[file.path for file in group] for group in compaction_groups(files, 100)]
    assert groups == [["a", "b"]]
