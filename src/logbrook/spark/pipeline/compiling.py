"""A pipeline's file as streaming queries that are ready to start, or all that is wrong with them.

Each sink is a query of its own, with its own readers, so that each commits its progress under its own consumer group.
The views are therefore made anew for each sink. They are temporary views of the session that is given.
"""

from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from logbrook.config.errors import Problem
from logbrook.spark.errors import OptionError, SparkError
from logbrook.spark.options import KAFKA_PREFIX
from logbrook.spark.pipeline.errors import PipelineRefusedError
from logbrook.spark.pipeline.parsing import META_COLUMNS, RowParser, as_key, records_of
from logbrook.spark.pipeline.reading import Options
from logbrook.spark.pipeline.spec import Pipeline, Sink, Source, View
from logbrook.spark.pipeline.targets import check_table
from logbrook.spark.sentences import position_in, sentence_of
from logbrook.spark.writer import stream_writer

RECORD_COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")
_SET_BY_PIPELINE = ("bootstrap.servers", "topic", "path", "checkpointlocation")
_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"


@dataclass(frozen=True, slots=True)
class Query:
    """A query that can be started."""

    name: str
    writer: DataStreamWriter


@dataclass(frozen=True, slots=True)
class Compiled:
    """`schemas` are those of the sources and views, in order. Dead letters come first, so that they start first."""

    queries: tuple[Query, ...]
    schemas: dict[str, StructType]


class Compiler:
    """Makes the queries of one pipeline; `readers` are the options of each source's reader."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, readers: dict[str, Options]) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._readers = readers
        self._parsers: dict[str, RowParser] = {}
        self._problems: list[Problem] = []

    def compile(self) -> Compiled:
        """Raises PipelineRefusedError with all that is wrong."""
        schemas = self._check_views()
        queries = []
        if not self._problems and self._pipeline.dead_letters is not None:
            queries = [self._dead_letters(one) for one in self._pipeline.sources if self._parsers[one.name].can_fail]
        for sink in self._pipeline.sinks:
            if sink.view in schemas and (query := self._query(sink, schemas)) is not None:
                queries.append(query)
        if self._problems:
            raise PipelineRefusedError(sorted(self._problems, key=lambda problem: problem.line))
        return Compiled(tuple(queries), schemas)

    def _check_views(self) -> dict[str, StructType]:
        """Make every view once, for its schema and its problems."""
        schemas: dict[str, StructType] = {}
        failed: set[str] = set()
        for source in self._pipeline.sources:
            try:
                self._parsers[source.name] = self._parser(source)
                self._make_source(source, None)
            except (PySparkException, ValueError) as error:
                self._note(source.line, f"sources.{source.name}: {sentence_of(error)}")
                failed.add(source.name)
            else:
                schemas[source.name] = self._spark.table(source.name).schema
        for view in self._pipeline.views:
            try:
                self._make_view(view)
            except PySparkException as error:
                if not _is_about(error, failed):
                    self._note(view.line, f"view {view.name}: {_with_position(error)}")
                failed.add(view.name)
            else:
                schemas[view.name] = self._spark.table(view.name).schema
        return schemas

    def _parser(self, source: Source) -> RowParser:
        if source.schema is None:
            return RowParser(source.format, None)
        schema = StructType.fromDDL(source.schema)
        if not isinstance(schema, StructType):
            raise ValueError(f"the schema must name columns, such as 'id BIGINT, at TIMESTAMP', not {source.schema!r}")
        taken = [name for name in schema.names if name.lower() in META_COLUMNS]
        if taken:
            raise ValueError(f"the schema has {', '.join(taken)}, which every source has already")
        return RowParser(source.format, schema)

    def _make_views(self, group_id: str, schemas: dict[str, StructType]) -> None:
        for source in self._pipeline.sources:
            if source.name in schemas:
                self._make_source(source, group_id)
        for view in self._pipeline.views:
            if view.name in schemas:
                self._make_view(view)

    def _make_source(self, source: Source, group_id: str | None) -> None:
        options = self._readers[source.name] | ({"group.id": group_id} if group_id is not None else {})
        records = records_of(self._spark, options)
        has_dead_letters = self._pipeline.dead_letters is not None
        rows = self._parsers[source.name].rows(records, drops_unparsed=has_dead_letters)
        if source.watermark is not None:
            rows = rows.withWatermark(source.watermark.column, source.watermark.delay)
        if source.unique:
            rows = rows.dropDuplicatesWithinWatermark(list(source.unique))
        # Whatever is wrong shows now, and not when the view is first used.
        rows.schema  # noqa: B018
        rows.createOrReplaceTempView(source.name)

    def _make_view(self, view: View) -> None:
        # What Spark's grammar takes here is a query and nothing else, so that no view changes anything.
        sql = view.sql.rstrip().rstrip(";")
        self._spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW `{view.name}` AS\n{sql}")

    def _query(self, sink: Sink, schemas: dict[str, StructType]) -> Query | None:
        name = self._pipeline.group_of(sink.name)
        self._make_views(name, schemas)
        frame = self._spark.table(sink.view)
        try:
            if not frame.isStreaming:
                raise ValueError(f"view {sink.view!r} reads no source, so it never has anything new")
            _check_mode(frame, sink.mode)
            rows = frame if sink.is_table else _as_records(frame, sink)
            options = self._writer_options(sink)
            if sink.is_table:
                check_table(options, rows.schema)
            else:
                stream_writer(options, rows.schema, False)
        except (PySparkException, SparkError, ValueError) as error:
            self._note(sink.line, f"sinks.{sink.name}: {sentence_of(error)}")
            return None
        return self._ready(rows, "logbrook_table" if sink.is_table else "logbrook", name, sink.mode, options)

    def _dead_letters(self, source: Source) -> Query:
        name = self._pipeline.group_of(f"dead-letters-{source.name}")
        records = records_of(self._spark, self._readers[source.name] | {"group.id": name}, with_headers=True)
        letters = self._parsers[source.name].dead_letters(records)
        assert self._pipeline.dead_letters is not None
        options = {
            "kafka.bootstrap.servers": self._pipeline.bootstrap_servers,
            "topic": self._pipeline.dead_letters,
            "checkpointLocation": self._pipeline.checkpoint_of_dead_letters(source.name),
        }
        return self._ready(letters, "logbrook", name, "append", options)

    def _writer_options(self, sink: Sink) -> Options:
        for name in sink.options:
            if name.lower().removeprefix(KAFKA_PREFIX) in _SET_BY_PIPELINE:
                raise OptionError(name, "the pipeline sets it itself")
        checkpoint = {"checkpointLocation": self._pipeline.checkpoint_of_sink(sink.name)}
        if sink.is_table:
            return {"path": sink.target, **sink.options, **checkpoint}
        servers = {"kafka.bootstrap.servers": self._pipeline.bootstrap_servers}
        return {**servers, "topic": sink.target, **sink.options, **checkpoint}

    def _ready(self, rows: DataFrame, form: str, name: str, mode: str, options: Options) -> Query:
        if mode == "append":
            writer = rows.writeStream.format(form).options(**options)
        else:
            # Spark has no sinks in Python that take updates, and takes a batch query for each micro-batch instead.
            writer = rows.writeStream.foreachBatch(_AppendBatch(form, options))
            writer = writer.option("checkpointLocation", options["checkpointLocation"])
        writer = writer.outputMode(mode).queryName(name)
        if self._pipeline.trigger_ms is None:
            return Query(name, writer.trigger(availableNow=True))
        return Query(name, writer.trigger(processingTime=f"{self._pipeline.trigger_ms} milliseconds"))

    def _note(self, line: int, what: str) -> None:
        self._problems.append(Problem(self._pipeline.path, what, line))


class _AppendBatch:
    """Writes each micro-batch of a query as a batch query."""

    def __init__(self, form: str, options: Options) -> None:
        self._form = form
        self._options = options

    def __call__(self, rows: DataFrame, batch_id: int) -> None:  # noqa: ARG002 - Spark calls it so
        rows.write.format(self._form).options(**self._options).mode("append").save()


def _as_records(frame: DataFrame, sink: Sink) -> DataFrame:
    """Rows as the writer wants them: those that have a value have the other columns too, of others JSON is made."""
    if sink.key is not None and sink.key not in frame.columns:
        raise ValueError(f"there is no column {sink.key!r} for the key; there are {', '.join(frame.columns)}")
    key = [] if sink.key is None else [as_key(frame, sink.key).alias("key")]
    if "value" in frame.columns:
        others = [f.col(name) for name in RECORD_COLUMNS if name in frame.columns and (name != "key" or not key)]
        return frame.select(*key, *others)
    columns = [f.col(f"`{name}`") for name in frame.columns]
    return frame.select(*key, f.to_json(f.struct(*columns), {"ignoreNullFields": "false"}).alias("value"))


def _check_mode(frame: DataFrame, mode: str) -> None:
    """Raises AnalysisException. Spark does this when a query starts, and has no other way to ask."""
    jvm = frame.sparkSession._jvm
    assert jvm is not None
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    plan = frame._jdf.queryExecution().analyzed()
    checker.checkForStreaming(plan, modes.Append() if mode == "append" else modes.Update())


def _is_about(error: PySparkException, views: set[str]) -> bool:
    """Whether it only says that a view is missing which has a problem of its own."""
    text = str(error)
    return _NOT_FOUND in text and any(f"`{name.lower()}`" in text.lower() for name in views)


def _with_position(error: PySparkException) -> str:
    position = position_in(error)
    # The first line is ours.
    where = f" (line {position[0] - 1} of it, column {position[1] + 1})" if position else ""
    return f"{sentence_of(error)}{where}"
