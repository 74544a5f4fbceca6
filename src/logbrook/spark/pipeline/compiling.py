"""Compilation of a PipelineSpec into prepared streaming queries, with all problems found; their description.

Each sink is one query with readers of its own, so that each commits its progress under its own consumer group. Views
are therefore created again for each sink, as temporary views of the given session.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from logbrook.config.errors import Problem
from logbrook.spark.errors import (
    InvalidPipelineError,
    OptionError,
    SparkError,
    UnreachableSourceError,
    is_unreachable,
    sql_position_of,
    summarize_error,
)
from logbrook.spark.headers import without_null_headers
from logbrook.spark.options import KAFKA_PREFIX
from logbrook.spark.pipeline.parsing import META_COLUMNS, RegisteredRowParser, RowParser, as_key
from logbrook.spark.pipeline.sources import Options
from logbrook.spark.pipeline.spec import UPSERT, PipelineSpec, SinkSpec, SourceSpec, StaticSourceSpec, ViewSpec
from logbrook.spark.tables.hadoop_settings import session_settings
from logbrook.spark.tables.source import check_write
from logbrook.spark.writer import stream_writer

RECORD_COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")
_SET_BY_PIPELINE = ("bootstrap.servers", "topic", "path", "checkpointlocation")
_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"
# Column of a sink's delete condition, for the table writer; it is not stored.
DELETE_COLUMN = "_is_delete"


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A streaming query that is ready to start."""

    name: str
    writer: DataStreamWriter


@dataclass(frozen=True, slots=True)
class CompiledPipeline:
    """Queries, those for dead letters first so that they start first, and schemas of sources and views in order.

    `written` holds the rows that each sink writes.
    """

    queries: tuple[PreparedQuery, ...]
    schemas: dict[str, StructType]
    written: dict[str, DataFrame]


class PipelineCompiler:
    """Creates the queries of one pipeline. `readers` holds the read options by source name."""

    def __init__(self, spark: SparkSession, pipeline: PipelineSpec, readers: dict[str, Options]) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._readers = readers
        self._parsers: dict[str, RowParser] = {}
        self._problems: list[Problem] = []
        # Of these, the ones that are not mistakes in the pipeline.
        self._unreachable: list[Problem] = []
        self._written: dict[str, DataFrame] = {}

    def compile(self) -> CompiledPipeline:
        """Return the queries. Raises InvalidPipelineError with every problem found.

        It is an UnreachableSourceError if nothing is wrong but that a source does not answer.
        """
        schemas = self._check_views()
        queries = []
        if not self._problems and self._pipeline.dead_letters is not None:
            queries = [
                self._dead_letters(source) for source in self._pipeline.sources if self._parsers[source.name].can_fail
            ]
        for sink in self._pipeline.sinks:
            if sink.view in schemas and (query := self._query(sink, schemas)) is not None:
                queries.append(query)
        if self._problems:
            is_valid = len(self._unreachable) == len(self._problems)
            error_type = UnreachableSourceError if is_valid else InvalidPipelineError
            raise error_type(sorted(self._problems, key=lambda problem: problem.line))
        return CompiledPipeline(tuple(queries), schemas, self._written)

    def _check_views(self) -> dict[str, StructType]:
        """Create every view once, and return the schemas of those without a problem."""
        schemas: dict[str, StructType] = {}
        failed: set[str] = set()
        for source in self._pipeline.sources:
            try:
                self._parsers[source.name] = self._parser(source)
                self._make_source(source, None)
            except (PySparkException, ValueError) as error:
                self._add_problem(source.line, f"sources.{source.name}: {summarize_error(error)}")
                if is_unreachable(error):
                    self._unreachable.append(self._problems[-1])
                failed.add(source.name)
            else:
                schemas[source.name] = self._spark.table(source.name).schema
        self._check_static_sources(schemas, failed)
        for view in self._pipeline.views:
            try:
                self._make_view(view)
            except PySparkException as error:
                if not _is_caused_by(error, failed):
                    self._add_problem(view.line, f"view {view.name}: {_with_position(error)}")
                failed.add(view.name)
            else:
                schemas[view.name] = self._spark.table(view.name).schema
        return schemas

    def _check_static_sources(self, schemas: dict[str, StructType], failed: set[str]) -> None:
        for source in self._pipeline.static_sources:
            try:
                self._make_static_source(source)
            except PySparkException as error:
                self._add_problem(source.line, f"sources.{source.name}: {summarize_error(error)}")
                failed.add(source.name)
            else:
                schemas[source.name] = self._spark.table(source.name).schema

    def _parser(self, source: SourceSpec) -> RowParser:
        if source.is_registered:
            return RegisteredRowParser(source.format, keeps_tombstones=source.keeps_tombstones)
        if source.schema is None:
            return RowParser(source.format, None)
        schema = StructType.fromDDL(source.schema)
        if not isinstance(schema, StructType):
            raise ValueError(f"the schema must name columns, such as 'id BIGINT, at TIMESTAMP', not {source.schema!r}")
        taken = [name for name in schema.names if name.lower() in META_COLUMNS]
        if taken:
            raise ValueError(f"the schema has {', '.join(taken)}, which every source has already")
        return RowParser(source.format, schema, keeps_tombstones=source.keeps_tombstones)

    def _make_views(self, group_id: str, schemas: dict[str, StructType]) -> None:
        for source in self._pipeline.sources:
            if source.name in schemas:
                self._make_source(source, group_id)
        for view in self._pipeline.views:
            if view.name in schemas:
                self._make_view(view)

    def _make_source(self, source: SourceSpec, group_id: str | None) -> None:
        options = self._readers[source.name] | ({"group.id": group_id} if group_id is not None else {})
        records = self._parsers[source.name].records(self._spark, options)
        has_dead_letters = self._pipeline.dead_letters is not None
        rows = self._parsers[source.name].rows(records, drops_unparsed=has_dead_letters)
        if source.watermark is not None:
            rows = rows.withWatermark(source.watermark.column, source.watermark.delay)
        if source.unique:
            rows = rows.dropDuplicatesWithinWatermark(list(source.unique))
        # Analyze now, so that errors are attributed to this source.
        rows.schema  # noqa: B018
        rows.createOrReplaceTempView(source.name)

    def _make_static_source(self, source: StaticSourceSpec) -> None:
        reader = self._spark.read.format(source.format).options(**source.options)
        if source.schema is not None:
            reader = reader.schema(source.schema)
        reader.load(source.path).createOrReplaceTempView(source.name)

    def _make_view(self, view: ViewSpec) -> None:
        # The grammar of CREATE VIEW accepts only a query, so a view cannot change data.
        sql = view.sql.rstrip().rstrip(";")
        self._spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW `{view.name}` AS\n{sql}")

    def _query(self, sink: SinkSpec, schemas: dict[str, StructType]) -> PreparedQuery | None:
        name = self._pipeline.group_of(sink.name)
        self._make_views(name, schemas)
        frame = self._spark.table(sink.view)
        try:
            if not frame.isStreaming:
                raise ValueError(f"view {sink.view!r} reads no source, so it cannot be streamed")
            mode = _output_mode(frame, sink)
            _check_mode(frame, mode)
            options = self._writer_options(sink)
            rows = _as_changes(frame, sink, options) if sink.is_table else _as_records(frame, sink)
            if sink.is_table:
                check_write({**session_settings(self._spark), **options}, rows.schema)
            else:
                stream_writer(options, rows.schema, False)
        except (PySparkException, SparkError, ValueError) as error:
            self._add_problem(sink.line, f"sinks.{sink.name}: {summarize_error(error)}")
            return None
        self._written[sink.name] = rows
        return self._prepare(rows, "logbrook_table" if sink.is_table else "logbrook", name, mode, options)

    def _dead_letters(self, source: SourceSpec) -> PreparedQuery:
        name = self._pipeline.group_of(f"dead-letters-{source.name}")
        parser = self._parsers[source.name]
        records = parser.records(self._spark, self._readers[source.name] | {"group.id": name}, for_dead_letters=True)
        letters = parser.dead_letters(records)
        assert self._pipeline.dead_letters is not None
        options = {
            **self._pipeline.client,
            "kafka.bootstrap.servers": self._pipeline.bootstrap_servers,
            "topic": self._pipeline.dead_letters,
            "delivery": "exactly-once",
            "checkpointLocation": self._pipeline.checkpoint_of_dead_letters(source.name),
        }
        return self._prepare(letters, "logbrook", name, "append", options)

    def _writer_options(self, sink: SinkSpec) -> Options:
        for name in sink.options:
            if name.lower().removeprefix(KAFKA_PREFIX) in _SET_BY_PIPELINE:
                raise OptionError(name, "the pipeline sets it")
        checkpoint = {"checkpointLocation": self._pipeline.checkpoint_of_sink(sink.name)}
        if sink.is_table:
            return {"path": sink.target, **sink.options, **checkpoint}
        servers = {**self._pipeline.client, "kafka.bootstrap.servers": self._pipeline.bootstrap_servers}
        return {**servers, "topic": sink.target, **sink.options, **checkpoint}

    def _prepare(self, rows: DataFrame, format_: str, name: str, mode: str, options: Options) -> PreparedQuery:
        if mode == "append":
            writer = rows.writeStream.format(format_).options(**options)
        else:
            # Python sinks do not support update mode; write each micro-batch with a batch query instead.
            writer = rows.writeStream.foreachBatch(
                lambda batch, _: batch.write.format(format_).options(**options).mode("append").save()
            ).option("checkpointLocation", options["checkpointLocation"])
        writer = writer.outputMode(mode).queryName(name)
        if self._pipeline.trigger_ms is None:
            return PreparedQuery(name, writer.trigger(availableNow=True))
        return PreparedQuery(name, writer.trigger(processingTime=f"{self._pipeline.trigger_ms} milliseconds"))

    def _add_problem(self, line: int, message: str) -> None:
        self._problems.append(Problem(self._pipeline.path, message, line))


def _as_records(frame: DataFrame, sink: SinkSpec) -> DataFrame:
    """Return rows with the sink's columns: as they are if there is a column `value`, else each row as a JSON object."""
    if sink.key is not None and sink.key not in frame.columns:
        raise ValueError(f"there is no column {sink.key!r} for the key; there are {', '.join(frame.columns)}")
    key = [] if sink.key is None else [as_key(frame, sink.key).alias("key")]
    if "value" in frame.columns:
        others = [f.col(name) for name in RECORD_COLUMNS if name in frame.columns and (name != "key" or not key)]
        return without_null_headers(frame.select(*key, *others))
    columns = [f.col(f"`{name}`") for name in frame.columns]
    if sink.options.get("value.format") in ("avro", "protobuf"):
        return frame.select(*key, f.struct(*columns).alias("value"))
    return frame.select(*key, f.to_json(f.struct(*columns), {"ignoreNullFields": "false"}).alias("value"))


def _as_changes(frame: DataFrame, sink: SinkSpec, options: Options) -> DataFrame:
    """Return the rows of a table sink, with a column for `delete`, which is added to `options`."""
    if sink.delete is None:
        return frame
    if sink.delete in frame.columns:
        options["upsert.delete"] = sink.delete
        return frame
    rows = frame.withColumn(DELETE_COLUMN, f.expr(sink.delete))
    kind = rows.schema[DELETE_COLUMN].dataType.simpleString()
    if kind != "boolean":
        raise ValueError(f"delete = {sink.delete!r} is {kind}, not a condition")
    options["upsert.delete"] = DELETE_COLUMN
    return rows


def _output_mode(frame: DataFrame, sink: SinkSpec) -> str:
    """Return Spark's output mode. Changed aggregates are upserted; other rows never change."""
    if sink.mode != UPSERT:
        return sink.mode
    jvm = frame.sparkSession._jvm
    assert jvm is not None
    aggregate = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.AGGREGATE()
    return "update" if frame._jdf.queryExecution().analyzed().containsPattern(aggregate) else "append"


def _check_mode(frame: DataFrame, mode: str) -> None:
    """Raise the AnalysisException that Spark would raise for the output mode when the query starts."""
    jvm = frame.sparkSession._jvm
    assert jvm is not None
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    plan = frame._jdf.queryExecution().analyzed()
    checker.checkForStreaming(plan, modes.Append() if mode == "append" else modes.Update())


def _is_caused_by(error: PySparkException, views: set[str]) -> bool:
    """Return True if `error` only reports a missing view whose creation already failed."""
    text = str(error)
    return _NOT_FOUND in text and any(f"`{name.lower()}`" in text.lower() for name in views)


def _with_position(error: PySparkException) -> str:
    position = sql_position_of(error)
    # The first line is our CREATE VIEW.
    where = f" (line {position[0] - 1} of it, column {position[1] + 1})" if position else ""
    return f"{summarize_error(error)}{where}"


def describe(
    pipeline: PipelineSpec, compiled: CompiledPipeline, readers: Mapping[str, Options], *, with_plans: bool = False
) -> str:
    """Return the output of `logbrook pipeline check`: sources, views and sinks with columns, and Spark's plans."""
    lines = [*_lines(pipeline, compiled, readers)]
    if with_plans:
        for name, rows in compiled.written.items():
            lines += [f"plan of sink {name}", _plan_of(rows)]
    return "\n".join(lines)


def _plan_of(rows: DataFrame) -> str:
    jvm = rows.sparkSession._jvm
    assert jvm is not None
    plan = jvm.org.apache.spark.sql.api.python.PythonSQLUtils.explainString(rows._jdf.queryExecution(), "formatted")
    return "\n".join(f"  {line}" for line in str(plan).strip().splitlines())


def _lines(pipeline: PipelineSpec, compiled: CompiledPipeline, readers: Mapping[str, Options]) -> Iterator[str]:
    yield f"pipeline {pipeline.name} at {pipeline.bootstrap_servers}"
    yield f"  checkpoint {pipeline.checkpoint}"
    yield f"  trigger    {trigger_text(pipeline)}"
    for source in pipeline.sources:
        option, topics = source.subscription
        subscription = f"topics like {topics}" if option == "subscribePattern" else f"topic {topics}"
        starting = readers[source.name]["startingOffsets"]
        yield f"source {source.name}: {subscription}, {source.format}, from {starting}"
        yield from _columns(compiled.schemas[source.name])
        if source.watermark is not None:
            yield f"  watermark {source.watermark.column}, {source.watermark.delay}"
    for static in pipeline.static_sources:
        kind = "table" if static.format == "logbrook_table" else f"{static.format} files"
        yield f"source {static.name}: {kind} {static.path}, static"
        yield from _columns(compiled.schemas[static.name])
    for view in pipeline.views:
        yield f"view {view.name}"
        yield from _columns(compiled.schemas[view.name])
    for sink in pipeline.sinks:
        group = pipeline.group_of(sink.name)
        yield f"sink {sink.name}: {sink.view} -> {_target(sink)}, mode {sink.mode}, group {group}"
        yield from _columns(compiled.written[sink.name].schema)
    if pipeline.dead_letters is None:
        yield "dead letters: none, a record that does not parse stops the pipeline"
    else:
        yield f"dead letters: topic {pipeline.dead_letters}"


def trigger_text(pipeline: PipelineSpec) -> str:
    if pipeline.schedule is not None:
        return f"on schedule, {pipeline.schedule.text}"
    return "once" if pipeline.trigger_ms is None else f"every {pipeline.trigger_ms / 1000:g} s"


def _columns(schema: StructType) -> Iterator[str]:
    width = max((len(name) for name in schema.names), default=0)
    for field in schema.fields:
        yield f"  {field.name:<{width}} {field.dataType.simpleString()}"


def _target(sink: SinkSpec) -> str:
    if not sink.is_table:
        return f"topic {sink.target}" + (f" by {sink.key}" if sink.key else "")
    partition_by = sink.options.get("partition.by")
    table = f"{sink.options['table.format']} table {sink.target}"
    table += f" by {partition_by}" if partition_by else ""
    keys = sink.options.get("upsert.keys")
    return table + (f", key {keys}" if keys else "")
