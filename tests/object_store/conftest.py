"""One S3 server for all tests below this folder, and tables in it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.interop.java.download_cache import MissingToolError
from tests.object_store.s3_server import BUCKET, S3Server, running_s3
from tests.unit.spark.tables.conftest import FRAME, TableUnderTest

MakeTable = Callable[..., TableUnderTest]


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """Skips the tests, with the reason, if the server can be neither found nor built."""
    try:
        with running_s3() as server:
            yield server
    except MissingToolError as error:
        pytest.skip(f"NO S3 SERVER, SO NOTHING IS PROVEN FOR TABLES IN OBJECT STORES: {error}")


@pytest.fixture(params=["delta", "iceberg", "parquet"])
def table_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_table(s3_server: S3Server, table_format: str, tmp_path: Path) -> MakeTable:
    """Return a function that names a new table. An Iceberg table has an SQL catalog outside the store."""

    def make(address: str | None = None, **options: str) -> TableUnderTest:
        named = {name.replace("_", "."): text for name, text in options.items()}
        if table_format == "iceberg":
            catalog = {"iceberg.catalog.type": "sql", "iceberg.catalog.uri": f"sqlite:///{tmp_path}/catalog.db"}
            named = {**catalog, **named}
        path = f"s3://{BUCKET}/tables/{uuid4()}"
        return TableUnderTest(
            {"path": path, "table.format": table_format, **s3_server.options(address), **named}, FRAME
        )

    return make
