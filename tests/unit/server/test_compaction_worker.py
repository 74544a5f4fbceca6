"""The compaction worker: its result is that of the pure cleaner, and its failures end a pass and nothing else."""

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from logbrook.config import CleanupPolicy
from logbrook.model.identifiers import Offset
from logbrook.ports import Bytes, OsFiles
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.server import compaction_worker
from logbrook.server.compaction_worker import CompactionWorker, WorkerCleaner
from logbrook.storage.cleaner import PureCleaner
from logbrook.storage.compaction import compact
from logbrook.storage.errors import CleanerFailedError, CorruptLogError
from logbrook.testing import MemoryFiles
from tests.unit.compactor.random_logs import FileSource, RandomLog, random_log
from tests.unit.storage.kit import NOW_MS, Store, flip


@pytest.fixture(scope="module")
def worker() -> Iterator[CompactionWorker]:
    worker = CompactionWorker(bytes_min=0)
    yield worker
    worker.stop()


def on_disk(log: RandomLog, root: Path) -> OsFiles:
    files = OsFiles(root)
    for path, size, _ in log.job.spans:
        with closing(files.create(path)) as file:
            file.pwrite(log.files.open(path).pread(size, 0), 0)
    return files


def cleaner_of(worker: CompactionWorker, log: RandomLog, root: Path) -> WorkerCleaner:
    cleaner = worker.cleaner(on_disk(log, root), log.job)
    assert cleaner is not None
    return cleaner


def test_the_worker_keeps_what_the_pure_cleaner_keeps(worker: CompactionWorker, tmp_path: Path) -> None:
    for seed in range(20):
        log = random_log(seed)
        log = log._replace(job=log.job._replace(map_bytes_max=1 << 20))
        pure = PureCleaner(log.job, FileSource(log))
        cleaner = cleaner_of(worker, log, tmp_path / str(seed))
        assert cleaner.build_map() == pure.build_map()
        for path in log.paths():
            kept, expected = bytearray(), bytearray()
            assert cleaner.clean([path], kept.extend) == pure.clean([path], expected.extend)
            assert kept == expected
            assert cleaner.emptied == pure.emptied
            if seed % 2:
                cleaner.keep_markers()
                pure.keep_markers()


def test_a_killed_worker_ends_the_pass_and_the_next_pass_has_a_new_one(
    worker: CompactionWorker, tmp_path: Path
) -> None:
    log = random_log(3)
    cleaner = cleaner_of(worker, log, tmp_path / "first")
    cleaner.build_map()
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(CleanerFailedError):
        cleaner.clean(log.paths(), lambda _kept: None)
    assert worker.pid is None
    with pytest.raises(CleanerFailedError, match="restarted"):
        cleaner.clean(log.paths(), lambda _kept: None)
    again = cleaner_of(worker, log, tmp_path / "second")
    assert again.build_map() > 0


def test_a_damaged_segment_is_a_failure_that_names_the_reason(worker: CompactionWorker, tmp_path: Path) -> None:
    log = random_log(1)
    cleaner = cleaner_of(worker, log, tmp_path)
    last = tmp_path / log.paths()[-1]
    data = bytearray(last.read_bytes())
    data[-1] ^= 1
    last.write_bytes(data)
    with pytest.raises(CleanerFailedError, match="CorruptBatchError"):
        cleaner.build_map()


def test_a_segment_that_is_gone_is_a_failure(worker: CompactionWorker, tmp_path: Path) -> None:
    log = random_log(1)
    cleaner = cleaner_of(worker, log, tmp_path)
    (tmp_path / log.paths()[-1]).unlink()
    with pytest.raises(CleanerFailedError, match="FileNotFoundError"):
        cleaner.build_map()


def test_an_error_of_a_write_is_raised_as_it_is(worker: CompactionWorker, tmp_path: Path) -> None:
    log = random_log(4)
    cleaner = cleaner_of(worker, log, tmp_path)
    cleaner.build_map()

    def fail(_kept: Bytes) -> None:
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        cleaner.clean(log.paths(), fail)
    assert worker.pid is None, "it was in the middle of an answer"


def test_a_worker_that_says_nothing_is_killed(
    worker: CompactionWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = random_log(5)
    cleaner = cleaner_of(worker, log, tmp_path)
    cleaner.build_map()
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    monkeypatch.setattr(compaction_worker, "_SILENCE_S_MAX", 0.01)
    with pytest.raises(CleanerFailedError, match="no progress"):
        cleaner.clean(log.paths(), lambda _kept: None)
    assert worker.pid is None


def test_small_jobs_and_files_in_memory_are_not_for_the_worker(tmp_path: Path) -> None:
    log = random_log(6)
    assert CompactionWorker().cleaner(on_disk(log, tmp_path), log.job) is None
    assert CompactionWorker(bytes_min=0).cleaner(MemoryFiles(), log.job) is None


def test_the_worker_is_stopped_after_a_round_without_work(worker: CompactionWorker, tmp_path: Path) -> None:
    cleaner_of(worker, random_log(7), tmp_path).build_map()
    pid = worker.pid
    assert pid is not None
    assert os.getpriority(os.PRIO_PROCESS, pid) == 10
    worker.stop_unless_used()
    assert worker.pid == pid, "it was used in this round"
    worker.stop_unless_used()
    assert worker.pid is None
    assert not Path(f"/proc/{pid}").exists()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    family: list[Store] = []
    policy = {"cleanup_policy": {CleanupPolicy.COMPACT}, "segment_bytes": 1, "file_delete_delay_ms": 0}
    store = Store(OsFiles(tmp_path), policy, family)
    store.create()
    for number in range(6):
        store.write(build_batch([Record(b"key%d" % (number % 2), b"%d" % number, (), NOW_MS)]))
    store.log.roll()
    store.directory.checkpoint()
    yield store
    store.close()


def test_a_log_is_compacted_by_the_worker(worker: CompactionWorker, store: Store) -> None:
    done = compact(store.log, NOW_MS + 1, cleaners=worker.cleaner)
    assert done is not None
    assert done.cleaned_offset == 6
    assert store.values() == [b"4", b"5"]
    store.log.validate()


def test_a_log_is_compacted_although_the_worker_fails(
    worker: CompactionWorker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkerCleaner, "clean", lambda *_: worker.ask({"clean": {"paths": ["x"], "keeps_markers": 1}}))
    done = compact(store.log, NOW_MS + 1, cleaners=worker.cleaner)
    assert done is not None
    assert store.values() == [b"4", b"5"]
    assert [name for name in store.files.list("orders-0") if name.endswith(".tmp")] == []


def test_damage_that_the_worker_finds_is_reported_as_that_of_the_log(worker: CompactionWorker, store: Store) -> None:
    flip(store.files, store.log.closed[2].path, -1)
    with pytest.raises(CorruptLogError):
        compact(store.log, NOW_MS + 1, cleaners=worker.cleaner)
    assert store.log.corruption is not None
    assert store.log.corruption.offset == Offset(2)
