"""Object stores, one server of each kind for all tests below this folder, and tables in them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest

from tests.interop.java.download_cache import MissingToolError
from tests.object_store.azure_server import AzureServer, running_azure
from tests.object_store.google_server import GoogleServer, running_google
from tests.object_store.s3_server import S3Server, running_s3
from tests.object_store.store_server import StoreServer
from tests.unit.spark.tables.conftest import FRAME, TableUnderTest

MakeTable = Callable[..., TableUnderTest]
Server = TypeVar("Server")


def _run(running: Callable[[], AbstractContextManager[Server]], kind: str) -> Iterator[Server]:
    """Run a server. Skips the tests, with the reason, if it can be neither found nor built."""
    try:
        with running() as server:
            yield server
    except MissingToolError as error:
        pytest.skip(f"NO {kind} SERVER, SO NOTHING IS PROVEN FOR TABLES THERE: {error}")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    yield from _run(running_s3, "S3")


@pytest.fixture(scope="session")
def azure_server() -> Iterator[AzureServer]:
    yield from _run(running_azure, "AZURE")


@pytest.fixture(scope="session")
def google_server() -> Iterator[GoogleServer]:
    yield from _run(running_google, "GOOGLE STORAGE")


@pytest.fixture(
    params=["s3", pytest.param("azure", marks=pytest.mark.long), pytest.param("google", marks=pytest.mark.long)]
)
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store_server(store_kind: str, request: pytest.FixtureRequest) -> StoreServer:
    server: StoreServer = request.getfixturevalue(f"{store_kind}_server")
    return server


@pytest.fixture(params=["delta", "iceberg", "parquet"])
def table_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_table(store_server: StoreServer, table_format: str, tmp_path: Path) -> MakeTable:
    """Return a function that names a new table. An Iceberg table has an SQL catalog outside the store."""

    def make(address: str | None = None, **options: str) -> TableUnderTest:
        named = {name.replace("_", "."): text for name, text in options.items()}
        if table_format == "iceberg":
            catalog = {"iceberg.catalog.type": "sql", "iceberg.catalog.uri": f"sqlite:///{tmp_path}/catalog.db"}
            named = {**catalog, **named}
        path = store_server.location(f"tables/{uuid4()}")
        return TableUnderTest(
            {"path": path, "table.format": table_format, **store_server.options(address), **named}, FRAME
        )

    return make
