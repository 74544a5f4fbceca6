"""A table of each format, written as Spark would, without Spark."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from logbrook.spark.tables.commits import TableWrite, load_existing, publish
from logbrook.spark.tables.files import read_file
from logbrook.spark.tables.format import DataFile, TableFormat, TableOptions, TableVersion, open_format
from logbrook.spark.tables.source import plan_write

Rows = Sequence[dict[str, Any]]


@dataclass
class TableUnderTest:
    """A table and the frame that is written to it."""

    options: dict[str, str]
    frame: StructType

    @property
    def path(self) -> str:
        return self.options["path"]

    @property
    def format(self) -> TableFormat:
        return open_format(TableOptions.parse(self.options))

    @property
    def version(self) -> TableVersion:
        return load_existing(self.format)

    def write_files(self, rows: Rows, frame: StructType | None = None, **options: str) -> list[DataFile]:
        """Write files without a commit, as tasks do."""
        frame = frame or self.frame
        plan = plan_write(TableOptions.parse({**self.options, **options}), frame)
        schema = to_arrow_schema(frame, timezone="UTC")
        return list(plan.run(iter([pa.RecordBatch.from_pylist(list(rows), schema=schema)])).files)

    def append(self, rows: Rows, frame: StructType | None = None, **write: Any) -> bool:
        return publish(self.format, TableWrite(self.write_files(rows, frame), **write))

    def rows(self) -> list[dict[str, Any]]:
        version, storage = self.version, self.format.storage
        batches = [batch for file in version.data_files() for batch in read_file(file, version.schema, storage)]
        rows = [row for batch in batches for row in batch.to_pylist()]
        return sorted(rows, key=lambda row: str(row["id"]))

    def on_disk(self) -> set[str]:
        return {str(path) for path in Path(self.path).rglob("*.parquet")}


FRAME = from_arrow_schema(pa.schema({"id": pa.int64(), "day": pa.string(), "note": pa.string()}))


@pytest.fixture(params=["delta", "iceberg", "parquet"])
def table_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_table(table_format: str, tmp_path: Path) -> Callable[..., TableUnderTest]:
    def make(frame: StructType = FRAME, **options: str) -> TableUnderTest:
        named = {name.replace("_", "."): text for name, text in options.items()}
        return TableUnderTest({"path": str(tmp_path / "table"), "table.format": table_format, **named}, frame)

    return make
