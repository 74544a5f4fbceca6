"""The parsed pipeline file. Each part has its line number, for problems that are found later."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from logbrook.spark.pipeline.schedule import Schedule

# Mode of a table sink in which a row replaces that of the same key.
UPSERT = "upsert"


class RowFormat(StrEnum):
    """Format of record values."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    STRING = "string"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Watermark:
    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A table [sources.NAME]. `subscription` is name and value of the read option that selects topics.

    `is_registered` is true for values with a schema in the registry; `schema` is then that of the reader, if given.
    With `keeps_tombstones` a record without a value is a row of nulls.
    """

    name: str
    line: int
    subscription: tuple[str, str]
    format: RowFormat
    schema: str | None
    starting: str
    watermark: Watermark | None
    unique: tuple[str, ...]
    options: Mapping[str, str]
    is_registered: bool = False
    keeps_tombstones: bool = False


@dataclass(frozen=True, slots=True)
class StaticSourceSpec:
    """A table [sources.NAME] with `table` or `files`: rows that are not streamed, for joins.

    `format` is a format of Spark's reader.
    """

    name: str
    line: int
    path: str
    format: str
    schema: str | None
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ViewSpec:
    name: str
    line: int
    sql: str


@dataclass(frozen=True, slots=True)
class MaintenanceSpec:
    """Maintenance of a sink's table: intervals in ms, None where it is not scheduled, and the age of deleted files."""

    optimize_ms: int | None
    vacuum_ms: int | None
    keep_ms: int


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """A table [sinks.NAME]. `target` is a topic's name or a table's directory.

    `delete` is the SQL condition of mode upsert that makes a row a delete.
    """

    name: str
    line: int
    view: str
    is_table: bool
    target: str
    mode: str
    key: str | None
    options: Mapping[str, str]
    delete: str | None = None
    maintenance: MaintenanceSpec | None = None


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The table [restart]: how often a failed query is started again, and after which delay.

    `attempts` counts restarts in a row; 0 disables them. The delay doubles with each of them.
    """

    attempts: int = 5
    delay_ms: int = 1_000
    delay_ms_max: int = 60_000

    def delay_s(self, failures: int) -> float:
        """Return the delay after the given number of failures in a row, at least 1."""
        return min(self.delay_ms << (failures - 1), self.delay_ms_max) / 1000


NO_RESTARTS = RestartPolicy(attempts=0)


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """A pipeline. `path` is its file, for messages; `trigger_ms` is None for trigger = "once" (AvailableNow).

    `dead_letters` and `reports` are topics, or None. With a `schedule` the pipeline processes the available records at
    each of its times.
    """

    path: str
    name: str
    bootstrap_servers: str
    checkpoint: str
    trigger_ms: int | None
    master: str | None
    conf: Mapping[str, str]
    sources: tuple[SourceSpec, ...]
    views: tuple[ViewSpec, ...]
    sinks: tuple[SinkSpec, ...]
    dead_letters: str | None
    reports: str | None
    static_sources: tuple[StaticSourceSpec, ...] = ()
    schedule: Schedule | None = None
    schema_registry: str | None = None
    restart: RestartPolicy = RestartPolicy()
    # Security options of the connections to the cluster, as options of readers and writers.
    client: Mapping[str, str] = field(default_factory=dict, repr=False)

    def group_of(self, query: str) -> str:
        """Return the consumer group under which a query commits its progress; also the query's name."""
        return f"{self.name}-{query}"

    def checkpoint_of_sink(self, sink: str) -> str:
        return f"{self.checkpoint}/sinks/{sink}"

    def checkpoint_of_dead_letters(self, source: str) -> str:
        return f"{self.checkpoint}/dead_letters/{source}"
