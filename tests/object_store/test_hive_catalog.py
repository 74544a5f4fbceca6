"""Iceberg tables in a real Hive metastore: rows, competing writers, lost answers, locks that are left behind."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from logbrook.spark.errors import CommitConflictError, TableError
from logbrook.spark.tables.format import ChangeKind, TableChange
from logbrook.spark.tables.maintenance import compact
from tests.interop.java.download_cache import MissingToolError
from tests.object_store.hive_metastore import running_hive
from tests.object_store.losing_proxy import Loss
from tests.object_store.thrift_proxy import ThriftProxy
from tests.unit.spark.tables.conftest import FRAME, TableUnderTest

pytestmark = pytest.mark.long
WRITERS = 2
BATCHES = 3
COMMIT = "alter_table_with_environment_context"
STREAM = {"app_id": "app", "batch_id": 1}
BATCH: dict[str, Any] = {}
MakeTable = Callable[..., TableUnderTest]


def row(number: int) -> dict[str, Any]:
    return {"id": number, "day": "monday", "note": None}


@pytest.fixture(scope="module")
def metastore() -> Iterator[str]:
    pytest.importorskip("thrift", reason="NO CLIENT OF HIVE, SO NOTHING IS PROVEN WITH ITS METASTORE")
    try:
        with running_hive() as address:
            yield address
    except MissingToolError as error:
        pytest.skip(f"NO HIVE METASTORE, SO NOTHING IS PROVEN WITH ONE: {error}")


@pytest.fixture
def proxy(metastore: str) -> Iterator[ThriftProxy]:
    with ThriftProxy(metastore).running() as running:
        yield running


@pytest.fixture
def make_table(metastore: str, tmp_path: Path) -> MakeTable:
    name = f"t{uuid4().hex}"

    def make(address: str | None = None, **options: str) -> TableUnderTest:
        catalog = {
            "iceberg.catalog.type": "hive",
            "iceberg.catalog.uri": f"thrift://{address or metastore}",
            "iceberg.catalog.hive.metastore.client.socket.timeout": "5",
            "iceberg.table": name,
        }
        return TableUnderTest({"path": str(tmp_path / "t"), "table.format": "iceberg", **catalog, **options}, FRAME)

    return make


def test_a_batch_is_committed_once_however_often_it_is_replayed(make_table: MakeTable) -> None:
    table = make_table(**{"partition.by": "day"})
    for number in range(BATCHES):
        assert table.append([row(number)], app_id="app", batch_id=number)
        assert not table.append([row(number)], app_id="app", batch_id=number)
    expected = [row(number) for number in range(BATCHES)]
    assert table.rows() == expected
    assert compact(table.path, options=table.options).files_added == 1
    assert table.rows() == expected
    assert table.version.batch_id_of("app") == BATCHES - 1


def test_two_writers_at_once_commit_every_batch_once(make_table: MakeTable) -> None:
    table = make_table()
    together = Barrier(WRITERS)

    def write(writer: int) -> None:
        together.wait(30)
        for batch_id in range(BATCHES):
            assert table.append([row(writer * BATCHES + batch_id)], app_id=f"app-{writer}", batch_id=batch_id)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(WRITERS)))
    assert table.rows() == [row(number) for number in range(WRITERS * BATCHES)]


@pytest.mark.parametrize(
    ("method", "loss", "write"),
    [
        (COMMIT, Loss.CUT, STREAM),
        (COMMIT, Loss.CUT, BATCH),
        (COMMIT, Loss.SILENCE, BATCH),
        ("lock", Loss.CUT, BATCH),
        ("unlock", Loss.CUT, BATCH),
    ],
)
def test_a_commit_whose_answer_is_lost_is_not_repeated(
    make_table: MakeTable, proxy: ThriftProxy, method: str, loss: Loss, write: dict[str, Any]
) -> None:
    table = make_table(proxy.address)
    table.append([row(1)], app_id="app", batch_id=0)
    proxy.lose(method, loss)
    assert table.append([row(2)], **write)
    assert proxy.lost() == [method]
    # No lock is left behind: this one does not wait for one to expire.
    table.append([row(3)], app_id="app", batch_id=2)
    assert table.rows() == [row(1), row(2), row(3)]


def test_a_table_is_created_once_if_the_answer_is_lost(make_table: MakeTable, proxy: ThriftProxy) -> None:
    table = make_table(proxy.address)
    proxy.lose("create_table", Loss.CUT)
    table.append([row(1)])
    assert proxy.lost() == ["create_table"]
    assert table.rows() == [row(1)]


def test_a_commit_on_an_old_version_is_a_conflict(make_table: MakeTable) -> None:
    table = make_table()
    table.append([row(1)])
    files, old = table.write_files([row(2)]), table.version
    table.append([row(3)])
    with pytest.raises(CommitConflictError, match="another commit came first"):
        old.commit(TableChange(ChangeKind.APPEND, files))
    assert table.rows() == [row(1), row(3)]


def test_a_writer_whose_lock_has_expired_replaces_no_commit(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logbrook.spark.tables.hive_catalog import CommittingClient  # noqa: PLC0415 - it needs an optional package

    table = make_table()
    table.append([row(1)])
    version, files = table.version, table.write_files([row(2)])
    alter = CommittingClient.alter_table_with_environment_context

    def overtaken(client: CommittingClient, *arguments: Any, **named: Any) -> None:
        """Let another writer commit between this one's look at the table and its commit, as if it had no lock."""
        monkeypatch.setattr(CommittingClient, "alter_table_with_environment_context", alter)
        with client._connections.another() as other:
            for lock in other.show_locks(_all_locks()).locks:
                other.unlock_here(_unlock(lock.lockid))
        table.append([row(3)])
        alter(client, *arguments, **named)

    monkeypatch.setattr(CommittingClient, "alter_table_with_environment_context", overtaken)
    with pytest.raises(CommitConflictError):
        version.commit(TableChange(ChangeKind.APPEND, files))
    assert table.rows() == [row(1), row(3)]


def test_a_metastore_that_is_away_is_an_error_with_its_name(make_table: MakeTable) -> None:
    with pytest.raises((TableError, OSError), match="the Hive metastore: Could not connect"):
        make_table("127.0.0.1:1").append([row(1)])


def test_times_need_the_setting_for_hive_2(make_table: MakeTable) -> None:
    rows = [{"id": 1, "at": datetime(2026, 1, 31, tzinfo=UTC)}]
    frame = from_arrow_schema(pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "UTC")}))
    plain = make_table()
    plain.frame = frame
    with pytest.raises(Exception, match="timestamp with local time zone"):
        plain.append(rows)
    # The metastore has taken the first table, and refuses each commit to it.
    options = {"iceberg.catalog.hive.hive2-compatible": "true", "iceberg.table": f"t{uuid4().hex}"}
    compatible = make_table(**options, path=f"{plain.path}-compatible")
    compatible.frame = frame
    compatible.append(rows)
    assert compatible.rows() == rows


def _all_locks() -> Any:
    from hive_metastore.ttypes import ShowLocksRequest  # noqa: PLC0415

    return ShowLocksRequest()


def _unlock(lock_id: int) -> Any:
    from hive_metastore.ttypes import UnlockRequest  # noqa: PLC0415

    return UnlockRequest(lockid=lock_id)
