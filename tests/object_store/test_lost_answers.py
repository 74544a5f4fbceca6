"""Commits that take effect while their response is lost: every row is in the table once."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from logbrook.spark.tables.iceberg_io import file_io_properties
from logbrook.spark.tables.rest_catalog import SOCKET_TIMEOUT
from logbrook.spark.tables.store_options import store_options
from tests.object_store.losing_proxy import LosingProxy, Loss, running_proxy
from tests.object_store.rest_catalog import RestCatalogServer
from tests.object_store.store_server import StoreServer
from tests.unit.spark.tables.conftest import TableUnderTest

MakeTable = Callable[..., TableUnderTest]
# The request that commits.
COMMITS = {
    "delta": ("PUT", r"/_delta_log/\d+\.json"),
    "parquet": ("PUT", r"/_manifests/\d+\.json"),
    "iceberg": ("POST", r"/namespaces/logbrook/tables/table"),
}


# A batch query has no ids by which a repetition is recognized.
STREAM = {"app_id": "app", "batch_id": 1}
BATCH: dict[str, Any] = {}


def row(number: int) -> dict[str, Any]:
    return {"id": number, "day": "monday", "note": None}


@pytest.fixture
def lossy_table(
    make_table: MakeTable, store_server: StoreServer, table_format: str, tmp_path: Path
) -> Iterator[tuple[TableUnderTest, LosingProxy]]:
    """A table whose commits go through a proxy: to the store, or to the REST catalog of an Iceberg table."""
    with ExitStack() as stack:
        if table_format == "iceberg":
            own = {name.removeprefix("storage."): text for name, text in store_server.options().items()}
            location = store_server.location("tables")
            settings = file_io_properties(location, store_options(location, own, {}), {})
            catalog = SqlCatalog("rest", uri=f"sqlite:///{tmp_path}/rest.db", **settings)
            server = stack.enter_context(RestCatalogServer(catalog).running())
            proxy = stack.enter_context(running_proxy(server.address))
            table = make_table(iceberg_catalog_type="rest", iceberg_catalog_uri=f"http://{proxy.address}")
            table.options[f"iceberg.catalog.{SOCKET_TIMEOUT}"] = "2000"
        else:
            proxy = stack.enter_context(running_proxy(store_server.address))
            table = make_table(proxy.address)
            table.options["storage.timeout"] = "2s"
        yield table, proxy


@pytest.mark.parametrize(
    ("table_format", "loss", "write"),
    [
        ("delta", Loss.CUT, STREAM),
        ("delta", Loss.CUT, BATCH),
        ("delta", Loss.SILENCE, BATCH),
        ("parquet", Loss.CUT, STREAM),
        ("parquet", Loss.SILENCE, BATCH),
        ("iceberg", Loss.CUT, STREAM),
        ("iceberg", Loss.CUT, BATCH),
        ("iceberg", Loss.SILENCE, BATCH),
    ],
)
def test_a_commit_whose_answer_is_lost_is_not_repeated(
    lossy_table: tuple[TableUnderTest, LosingProxy], table_format: str, loss: Loss, write: dict[str, Any]
) -> None:
    table, proxy = lossy_table
    table.append([row(1)], app_id="app", batch_id=0)
    proxy.lose(*COMMITS[table_format], loss)
    assert table.append([row(2)], **write)
    assert len(proxy.lost()) == 1
    table.append([row(3)], app_id="app", batch_id=2)
    assert table.rows() == [row(1), row(2), row(3)]


def test_a_table_is_created_once_if_the_answer_is_lost(
    lossy_table: tuple[TableUnderTest, LosingProxy], table_format: str
) -> None:
    table, proxy = lossy_table
    proxy.lose(*COMMITS[table_format], Loss.CUT)
    table.append([row(1)])
    assert len(proxy.lost()) == 1
    assert table.rows() == [row(1)]
