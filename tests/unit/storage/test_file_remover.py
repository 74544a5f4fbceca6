"""Files on their way out."""

from logbrook.ports import Files
from logbrook.storage.file_remover import FileRemover
from logbrook.storage.probe import StorageProbe
from logbrook.testing import MemoryFiles
from tests.unit.storage.kit import content, put


def remover_with(*names: str, due_ms: int = 0) -> tuple[MemoryFiles, FileRemover]:
    files = MemoryFiles()
    remover = FileRemover(files, StorageProbe())
    for name in names:
        put(files, name, name.encode())
        remover.retire(name, due_ms)
    return files, remover


def graveyard(files: Files, *names: str) -> None:
    files.make_dir("orders-0.deleted")
    for name in names:
        put(files, f"orders-0.deleted/{name}", b"x")


def test_a_retired_file_has_its_last_name_at_once() -> None:
    files, remover = remover_with("a")
    assert files.list("") == ["a.deleted"]
    assert len(remover) == 1


def test_a_file_stays_until_its_time_has_come() -> None:
    files, remover = remover_with("a", due_ms=100)
    assert remover.step(99) == []
    assert files.list("") == ["a.deleted"]
    assert remover.step(100) == ["a.deleted"]
    assert files.list("") == []
    assert len(remover) == 0


def test_one_step_unlinks_no_more_than_it_may() -> None:
    files, remover = remover_with("a", "b", "c")
    assert remover.step(0, files_max=2) == ["a.deleted", "b.deleted"]
    assert remover.step(0, files_max=2) == ["c.deleted"]
    assert files.list("") == []


def test_one_that_must_wait_does_not_hold_up_those_behind_it() -> None:
    files, remover = remover_with("later", due_ms=100)
    put(files, "now", b"x")
    remover.retire("now", 0)
    assert remover.step(0) == ["now.deleted"]
    assert files.list("") == ["later.deleted"]


def test_a_name_that_was_retired_twice_goes_once() -> None:
    files, remover = remover_with("a", "a")
    assert remover.step(0) == ["a.deleted"]
    assert files.list("") == []


def test_a_new_file_of_a_retired_name_is_not_touched() -> None:
    files, remover = remover_with("a")
    put(files, "a", b"new")
    remover.step(0)
    assert content(files, "a") == b"new"


def test_a_directory_goes_with_what_is_in_it() -> None:
    files, remover = remover_with()
    graveyard(files, "a", "b")
    remover.add_directory("orders-0.deleted", 0)
    assert remover.step(0) == ["orders-0.deleted/a", "orders-0.deleted/b"]
    assert files.list("") == []


def test_a_large_directory_goes_in_several_steps() -> None:
    files, remover = remover_with()
    graveyard(files, "a", "b", "c")
    remover.add_directory("orders-0.deleted", 0)
    steps = [remover.step(0, files_max=1) for _ in range(4)]
    assert [path for step in steps for path in step] == [f"orders-0.deleted/{name}" for name in "abc"]
    assert files.list("") == []


def test_an_empty_directory_goes_too() -> None:
    files, remover = remover_with()
    graveyard(files)
    remover.add_directory("orders-0.deleted", 0)
    assert remover.step(0) == []
    assert files.list("") == []


def test_the_files_that_went_are_counted() -> None:
    files = MemoryFiles()
    probe = StorageProbe()
    remover = FileRemover(files, probe)
    for name in "abc":
        put(files, name, b"x")
        remover.add(name, 0)
    remover.step(0)
    assert probe.files_unlinked == 3
