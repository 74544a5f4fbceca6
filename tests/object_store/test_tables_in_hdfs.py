"""Tables of every format in a real HDFS."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from logbrook.spark.tables.maintenance import compact, vacuum
from tests.interop.java.download_cache import MissingToolError
from tests.object_store.hdfs_cluster import running_hdfs
from tests.unit.spark.tables.conftest import FRAME, TableUnderTest

pytestmark = pytest.mark.long
WRITERS = 2
BATCHES = 3


def row(number: int) -> dict[str, Any]:
    return {"id": number, "day": "a b", "note": None}


@pytest.fixture(scope="module")
def hdfs() -> Iterator[str]:
    pytest.importorskip("hdfs_native", reason="NO CLIENT OF HDFS, SO NOTHING IS PROVEN WITH ONE")
    try:
        with running_hdfs() as uri:
            yield uri
    except MissingToolError as error:
        pytest.skip(f"NO HDFS, SO NOTHING IS PROVEN WITH ONE: {error}")


@pytest.mark.parametrize("table_format", ["delta", "iceberg", "parquet"])
def test_two_writers_at_once_commit_every_batch_once(hdfs: str, table_format: str, tmp_path: Path) -> None:
    options = {"path": f"{hdfs}/tables/{table_format}", "table.format": table_format, "partition.by": "day"}
    if table_format == "iceberg":
        options |= {"iceberg.catalog.type": "sql", "iceberg.catalog.uri": f"sqlite:///{tmp_path}/catalog.db"}
    table = TableUnderTest(options, FRAME)
    together = Barrier(WRITERS)

    def write(writer: int) -> None:
        together.wait(60)
        for batch_id in range(BATCHES):
            number = writer * BATCHES + batch_id
            assert table.append([row(number)], app_id=f"app-{writer}", batch_id=batch_id)
            assert not table.append([row(number)], app_id=f"app-{writer}", batch_id=batch_id)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(WRITERS)))
    expected = [row(number) for number in range(WRITERS * BATCHES)]
    assert table.rows() == expected
    old = {file.path for file in table.version.data_files()}
    assert len(old) == WRITERS * BATCHES
    assert compact(table.path, options=options).files_added == 1
    assert old <= set(vacuum(table.path, timedelta(0), dry_run=False, options=options).files)
    assert table.rows() == expected
