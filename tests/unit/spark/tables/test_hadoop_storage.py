"""The file operations of HDFS, with a client that keeps files in memory. tests/object_store has a real one."""

import io
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from logbrook.spark.errors import OptionError
from logbrook.spark.tables.format import TableOptions, open_format
from logbrook.spark.tables.hadoop_storage import HadoopStorage
from logbrook.spark.tables.storage import open_storage

ROOT = "hdfs://namenode:8020"


class MemoryClient:
    """The methods of hdfs-native's client that are used, with its errors."""

    def __init__(self, url: str, config: dict[str, str]) -> None:
        self.url = url
        self.config = config
        self.contents: dict[str, bytes] = {}

    def create(self, path: str) -> io.BytesIO:
        if path in self.contents:
            raise RuntimeError(f"{path} already exists")
        contents = self.contents

        class Writer(io.BytesIO):
            def close(self) -> None:
                contents[path] = self.getvalue()
                super().close()

        return Writer()

    def read(self, path: str) -> io.BytesIO:
        self.get_file_info(path)
        return io.BytesIO(self.contents[path])

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        if target in self.contents and not overwrite:
            raise RuntimeError(f"{target} already exists")
        self.contents[target] = self.contents.pop(source)

    def delete(self, path: str) -> bool:
        return self.contents.pop(path, None) is not None

    def mkdirs(self, path: str, create_parent: bool) -> None:
        """Do nothing: a directory exists if it has files."""

    def get_file_info(self, path: str) -> None:
        if not any(name == path or name.startswith(f"{path}/") for name in self.contents):
            raise FileNotFoundError(path)

    def list_status(self, path: str, recursive: bool) -> Iterator[Any]:
        names = {name.removeprefix(f"{path}/") for name in self.contents if name.startswith(f"{path}/")}
        for name in sorted(names if recursive else {name.partition("/")[0] for name in names}):
            content = self.contents.get(f"{path}/{name}")
            yield SimpleNamespace(
                path=f"{path}/{name}", isdir=content is None, length=len(content or b""), modification_time=1_000
            )


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> HadoopStorage:
    module = ModuleType("hdfs_native")
    module.Client = MemoryClient  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hdfs_native", module)
    return HadoopStorage(ROOT, {"dfs.client.failover.max.attempts": "3"})


def test_settings_are_passed_to_the_client(storage: HadoopStorage) -> None:
    assert (storage._client.url, storage._client.config) == (ROOT, {"dfs.client.failover.max.attempts": "3"})


def test_a_file_that_exists_is_not_replaced_and_leaves_no_draft(storage: HadoopStorage) -> None:
    path = f"{ROOT}/t/_manifests/0.json"
    storage.put_if_absent(path, b"first")
    with pytest.raises(FileExistsError):
        storage.put_if_absent(path, b"second")
    assert storage.read(path) == b"first"
    assert list(storage._client.contents) == ["/t/_manifests/0.json"]


def test_a_failed_rename_is_uncertain_unless_the_file_exists(
    storage: HadoopStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the name node is in safe mode")

    monkeypatch.setattr(storage._client, "rename", fail)
    with pytest.raises(OSError, match=r"0\.json: the name node is in safe mode") as failed:
        storage.put_if_absent(f"{ROOT}/t/0.json", b"first")
    assert not isinstance(failed.value, FileExistsError)
    assert storage._client.contents == {}


def test_files_are_listed_with_their_locations(storage: HadoopStorage) -> None:
    for name in ("a.json", "b.json", "c.json", "day=1/d.parquet"):
        sink = storage.create(f"{ROOT}/t/{name}")
        sink.stream.write(b"four")
        assert sink.finish() == 4
    assert storage.names(f"{ROOT}/t", "a.json") == ["b.json", "c.json"]
    assert storage.directories(f"{ROOT}/t") == {"day=1"}
    assert storage.directories(f"{ROOT}/nothing") == set()
    paths = [file.path for file in storage.files(f"{ROOT}/t")]
    assert paths == [f"{ROOT}/t/{name}" for name in ("a.json", "b.json", "c.json", "day=1/d.parquet")]
    assert storage.delete([paths[0], paths[0], f"{ROOT}/t/nothing"]) == 1
    storage.put(paths[1], b"replaced")
    assert storage.read(paths[1]) == b"replaced"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(OptionError, match=r"needs the package hdfs-native: pip install '.\[hdfs\]' in"):
        open_format(TableOptions.parse({"path": f"{ROOT}/t"}))
    with pytest.raises(OptionError, match="hdfs-native"):
        open_storage(f"{ROOT}/t")
