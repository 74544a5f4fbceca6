'''Parser of a pipeline's TOML file. All keys:

    name = "orders"                          # names the consumer groups: orders-totals, orders-archive
    bootstrap_servers = "127.0.0.1:9092"     # --bootstrap-servers wins
    checkpoint = "checkpoint"                # beside the file; the default. --checkpoint wins
    trigger = "10s"                          # the default; or "once": process the available records and end
    # or schedule = "1h", or a cron line in UTC such as "0 3 * * *": process the available records at these times
    reports = "__logbrook_pipelines"         # the default: topic for progress reports; or false. --reports wins
    schema_registry = "http://127.0.0.1:8081"        # for avro, protobuf, and json without a schema

    [client]                                 # optional: security options of the connections to the cluster
    config = "client.properties"             # a Kafka client's file, beside this one, that has the secrets
    security.protocol = "SASL_SSL"           # any of security.protocol, sasl.* and ssl.*; wins over the file

    [restart]                                # optional: restarts of failed queries; or restart = false
    attempts = 5                             # the default; in a row, without a batch that succeeds
    delay = "1s"                             # the default; doubles with each attempt
    delay_max = "1 minute"                   # the default

    [spark]                                  # optional
    master = "local[4]"                      # --master wins
    spark.sql.shuffle.partitions = 4         # any setting of Spark

    [sources.orders]                         # a view of that name
    topic = "orders"                         # or topics = ["a", "b"], or pattern = "orders-.*"
    format = "json"                          # the default; or avro, protobuf; or string, bytes: one column, value
    schema = "id BIGINT, amount DOUBLE, at TIMESTAMP"        # avro: the reader's schema, by default the latest one
    starting = "earliest"                    # the default; or latest, "-1h", offsets as JSON; only for the first start
    watermark = { column = "at", delay = "10 minutes" }
    tombstones = true                        # a record without a value is a row of nulls; by default it does not parse
    unique = ["id"]                          # drop duplicates in these columns within the watermark
    options = { maxOffsetsPerTrigger = 100000 }      # any option of the reader

    [sources.countries]                      # a static table for joins: a table that a pipeline wrote
    table = "tables/countries"               # or files = "countries/*.csv" with format = "csv", "json" or "parquet"

    [[views]]                                # in order; each may use the sources and the views before it
    name = "per_minute"
    sql = """SELECT window(at, '1 minute').start AS minute, sum(amount) AS total FROM orders GROUP BY 1"""

    [sinks.totals]
    view = "per_minute"                      # a view or a source
    topic = "totals"                         # each row as a JSON object, unless the view has a column `value`
    format = "json"                          # the default; or avro, protobuf: its schema is registered
    key = "minute"                           # the column that makes the key
    mode = "update"                          # append is the default
    options = { compression = "zstd" }       # any option of the writer

    [sinks.archive]
    view = "orders"
    table = "tables/orders"                  # beside the file
    format = "delta"                         # the default; or iceberg, parquet
    partition_by = ["day"]
    maintenance = { optimize = "1h", vacuum = "1d", keep = "7d" }   # merge small files, delete unreferenced old ones

    [sinks.current]
    view = "orders"
    table = "tables/current"                 # delta or iceberg
    mode = "upsert"                          # a row replaces that of the same key
    keys = ["id"]
    order = ["at"]                           # the newest row of a key; default: the record's offset
    delete = "amount IS NULL"                # SQL condition, or a boolean column: the row deletes that of its key

    [dead_letters]                           # without it a record that does not parse stops the pipeline
    topic = "orders-dead"

A source of a topic has the columns of its schema and `_key`, `_topic`, `_partition`, `_offset` and
`_timestamp`. All problems of a file are reported at once.
'''

import os
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from logbrook.client.errors import SecurityOptionError
from logbrook.client.properties import PropertiesError, read_properties
from logbrook.client.security import parse_client_security
from logbrook.client.security_options import is_security_option
from logbrook.config.errors import Problem
from logbrook.config.toml_lines import TomlSyntaxError, lines_of_keys, parse_toml
from logbrook.model.text import printable
from logbrook.pipelines.report import REPORTS_TOPIC
from logbrook.spark.errors import InvalidPipelineError, OptionError
from logbrook.spark.options import KAFKA_PREFIX
from logbrook.spark.pipeline.schedule import Schedule, ScheduleError, parse_schedule
from logbrook.spark.pipeline.spec import (
    NO_RESTARTS,
    UPSERT,
    PipelineSpec,
    RestartPolicy,
    RowFormat,
    SinkSpec,
    SourceSpec,
    StaticSourceSpec,
    ViewSpec,
    Watermark,
)
from logbrook.spark.pipeline.table_sinks import UPSERT_ONLY, read_maintenance, read_upsert_options
from logbrook.spark.pipeline.toml_table import Lines, ProblemList, TomlTable
from logbrook.spark.read_options import read_duration_ms
from logbrook.spark.tables.location import parse_location, resolve_beside
from logbrook.spark.topic_patterns import topic_pattern

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GROUP_NAME = re.compile(r"[A-Za-z0-9._-]+")
_VIEWS_HEADER = re.compile(r"\s*\[\[\s*views\s*\]\]")
_TRIGGER = "10s"
# Formats whose schemas are in a registry.
_REGISTERED = (RowFormat.AVRO, RowFormat.PROTOBUF)
MODES = ("append", "update")
TABLE_MODES = ("append", UPSERT)
TABLE_FORMATS = ("delta", "iceberg", "parquet")
FILE_FORMATS = ("parquet", "csv", "json", "orc", "text")
TOPIC_FORMATS = ("json", "avro", "protobuf")
TABLE_ONLY = ("partition_by", *UPSERT_ONLY, "maintenance")
TOPIC_ONLY = ("key",)


def read_pipeline(path: str, *, bootstrap_servers: str | None = None, checkpoint: str | None = None) -> PipelineSpec:
    """Parse the file at `path`; the arguments override its values. Raises InvalidPipelineError."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise InvalidPipelineError([Problem(printable(path), f"it cannot be read: {error.strerror}")]) from error
    try:
        document = parse_toml(content)
    except TomlSyntaxError as error:
        message = f"this is not TOML: {error.reason}"
        raise InvalidPipelineError([Problem(printable(path), message, error.line)]) from None
    reader = _PipelineFileReader(path, document, content.decode())
    pipeline = reader.read(bootstrap_servers, checkpoint)
    if reader.problems.problems:
        raise InvalidPipelineError(sorted(reader.problems.problems, key=lambda problem: problem.line))
    return pipeline


class _PipelineFileReader:
    def __init__(self, path: str, document: Mapping[str, Any], text: str) -> None:
        self.problems = ProblemList(printable(path), [])
        self._directory = os.path.dirname(os.path.abspath(path))
        self._lines = lines_of_keys(text)
        self._text = text
        self._document = document
        self._view_lines: dict[str, int] = {}
        self._registry: str | None = None

    def read(self, bootstrap_servers: str | None, checkpoint: str | None) -> PipelineSpec:
        top = TomlTable(self.problems, self._lines, (), self._document)
        name = top.required("name", 'name = "orders"')
        if name and not _GROUP_NAME.fullmatch(name):
            top.refuse("name", "letters, digits, dots, dashes and underscores")
        if bootstrap_servers is None:
            servers = top.required("bootstrap_servers", 'bootstrap_servers = "127.0.0.1:9092"')
        else:
            top.text("bootstrap_servers")
            servers = bootstrap_servers
        below = self._beside(top.text("checkpoint", "checkpoint") or "")
        trigger_ms = self._read_trigger(top)
        schedule = self._read_schedule(top)
        reports = top.text_unless_false("reports", REPORTS_TOPIC)
        restart = self._read_restart(top)
        client = self._read_client(top)
        master, conf = self._read_spark(top)
        self._registry = top.text("schema_registry")
        sources, static_sources = self._read_sources(top)
        views = self._read_views(top)
        sinks = self._read_sinks(top)
        dead_letters = self._read_dead_letters(top, sources)
        top.finish()
        return PipelineSpec(
            path=self.problems.file,
            name=name,
            bootstrap_servers=servers,
            checkpoint=below if checkpoint is None else resolve_beside(os.getcwd(), checkpoint),
            trigger_ms=trigger_ms if schedule is None else None,
            master=master,
            conf=conf,
            sources=sources,
            views=views,
            sinks=sinks,
            dead_letters=dead_letters,
            reports=reports,
            static_sources=static_sources,
            schedule=schedule,
            schema_registry=self._registry,
            restart=restart,
            client=client,
        )

    def _read_trigger(self, top: TomlTable) -> int | None:
        text = top.text("trigger", _TRIGGER) or _TRIGGER
        if text == "once":
            return None
        return _read_duration_ms(top, "trigger", text, 'once, or a duration such as "10s" or "5 minutes"')

    def _read_restart(self, top: TomlTable) -> RestartPolicy:
        if top.is_false("restart"):
            return NO_RESTARTS
        keys, default = top.table("restart"), RestartPolicy()
        if keys is None:
            return default
        must_be = 'a duration such as "500ms" or "1 minute"'
        restart = RestartPolicy(
            attempts=keys.count("attempts", default.attempts),
            delay_ms=_read_duration_ms(keys, "delay", keys.text("delay"), must_be) or default.delay_ms,
            delay_ms_max=_read_duration_ms(keys, "delay_max", keys.text("delay_max"), must_be) or default.delay_ms_max,
        )
        keys.finish()
        return restart

    def _read_client(self, top: TomlTable) -> dict[str, str]:
        """Return the options for readers and writers. No problem shows a value, which may be secret."""
        own = top.options("client")
        path = own.pop("config", None)
        try:
            from_file = {} if path is None else read_properties(self._beside(path))
            options = {name: value for name, value in from_file.items() if is_security_option(name)} | own
            parse_client_security(options)
        except (PropertiesError, SecurityOptionError) as error:
            top.add_problem(f"client: {error}", "client")
            return {}
        return {f"{KAFKA_PREFIX}{name}": value for name, value in options.items()}

    def _read_schedule(self, top: TomlTable) -> Schedule | None:
        text = top.text("schedule")
        if text is None:
            return None
        if "trigger" in top:
            top.add_problem("there are both trigger and schedule; keep one of them", "schedule")
        try:
            return parse_schedule(text)
        except ScheduleError as error:
            top.refuse("schedule", str(error))
            return None

    def _read_spark(self, top: TomlTable) -> tuple[str | None, dict[str, str]]:
        conf = top.options("spark")
        master = conf.pop("master", None)
        for name in conf:
            if not name.startswith("spark."):
                top.add_problem(
                    f"spark.{printable(name)} is unknown; there are master and settings that begin with spark.", "spark"
                )
        return master, conf

    def _read_sources(self, top: TomlTable) -> tuple[tuple[SourceSpec, ...], tuple[StaticSourceSpec, ...]]:
        tables = self._named(top, "sources")
        static = [keys for keys in tables if "table" in keys or "files" in keys]
        streamed = [keys for keys in tables if keys not in static]
        if not tables:
            top.add_problem("there is no source; add a table such as [sources.orders]")
        elif not streamed:
            top.add_problem("no source reads a topic, so there is nothing to stream; add one with a topic")
        return tuple(map(self._read_source, streamed)), tuple(map(self._read_static_source, static))

    def _read_static_source(self, keys: TomlTable) -> StaticSourceSpec:
        name = keys.path[-1]
        self._add_view(keys, name, keys.line)
        table, files = keys.text("table"), keys.text("files")
        if "table" in keys and "files" in keys:
            keys.add_problem(f"sources.{name} has both table and files; keep one of them", "files")
        if "table" in keys:
            if "format" in keys:
                keys.add_problem(f"sources.{name}.format is for files; a table's format is found in it", "format")
            keys.text("format")
            file_format = "logbrook_table"
        else:
            file_format = keys.choice("format", FILE_FORMATS, FILE_FORMATS[0])
        schema = keys.text("schema")
        if file_format in ("csv", "json") and schema is None:
            keys.add_problem(f'sources.{name}.schema is missing; {file_format} needs one, such as "code STRING"')
        path = self._beside(table or files or "")
        source = StaticSourceSpec(name, keys.line, path, file_format, schema, keys.options("options"))
        keys.finish()
        return source

    def _read_source(self, keys: TomlTable) -> SourceSpec:
        name = keys.path[-1]
        self._add_view(keys, name, keys.line)
        row_format = RowFormat(keys.choice("format", list(RowFormat), RowFormat.JSON))
        schema = keys.text("schema")
        self._check_schema(keys, row_format)
        is_registered = row_format in _REGISTERED or (row_format is RowFormat.JSON and schema is None)
        source = SourceSpec(
            name=name,
            line=keys.line,
            subscription=self._read_subscription(keys),
            format=row_format,
            schema=schema,
            starting=keys.text("starting", "earliest") or "earliest",
            watermark=self._read_watermark(keys),
            unique=keys.texts("unique"),
            options=keys.options("options"),
            is_registered=is_registered and self._registry is not None,
            keeps_tombstones=keys.boolean("tombstones"),
        )
        if source.unique and source.watermark is None:
            keys.add_problem(
                f"sources.{name}.unique needs a watermark, which limits how long rows are remembered", "unique"
            )
        keys.finish()
        return source

    def _check_schema(self, keys: TomlTable, row_format: RowFormat) -> None:
        name = ".".join(keys.path)
        if row_format in _REGISTERED and self._registry is None:
            keys.add_problem(
                f'{name}.format = "{row_format}" needs schema_registry = "http://127.0.0.1:8081"', "format"
            )
        elif row_format is RowFormat.JSON and "schema" not in keys and self._registry is None:
            keys.add_problem(f'{name}.schema is missing; JSON needs one, such as "id BIGINT, at TIMESTAMP"')
        elif row_format in (RowFormat.STRING, RowFormat.BYTES) and "schema" in keys:
            keys.add_problem(f"{name}.schema is for the format json, and this is {row_format}", "schema")

    def _read_subscription(self, keys: TomlTable) -> tuple[str, str]:
        topic, topics, pattern = keys.text("topic"), keys.texts("topics"), keys.text("pattern")
        given = [name for name in ("topic", "topics", "pattern") if name in keys]
        if not given:
            keys.add_problem(f"{'.'.join(keys.path)} has no topic; write topic, topics or pattern, or table or files")
        for name in given[1:]:
            keys.add_problem(f"{'.'.join(keys.path)} has both {given[0]} and {name}; keep one of them", name)
        if pattern is not None:
            return "subscribePattern", pattern
        return "subscribe", ",".join([topic] if topic is not None else topics)

    def _read_watermark(self, keys: TomlTable) -> Watermark | None:
        table = keys.table("watermark")
        if table is None:
            return None
        column = table.required("column", 'column = "at"')
        delay = table.required("delay", 'delay = "10 minutes"')
        table.finish()
        return Watermark(column, delay)

    def _read_views(self, top: TomlTable) -> tuple[ViewSpec, ...]:
        tables = top.tables("views")
        lines = _lines_of_views(self._text, self._lines, len(tables))
        keys = [TomlTable(self.problems, lines[number], ("views",), table) for number, table in enumerate(tables)]
        return tuple(self._read_view(table) for table in keys)

    def _read_view(self, keys: TomlTable) -> ViewSpec:
        name = keys.required("name", 'name = "per_minute"')
        if name:
            self._add_view(keys, name, keys.line)
        view = ViewSpec(name, keys.line_of("sql"), keys.required("sql", 'sql = "SELECT * FROM orders"'))
        keys.finish()
        return view

    def _read_sinks(self, top: TomlTable) -> tuple[SinkSpec, ...]:
        tables = self._named(top, "sinks")
        if not tables:
            top.add_problem("there is no sink; add a table such as [sinks.totals]")
        return tuple(self._read_sink(keys) for keys in tables)

    def _read_sink(self, keys: TomlTable) -> SinkSpec:
        name = keys.path[-1]
        view = keys.required("view", 'view = "orders"')
        if view and view not in self._view_lines:
            nearest = get_close_matches(view, self._view_lines, 1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(self._view_lines) or 'none'}"
            keys.add_problem(
                f'sinks.{name}.view = "{printable(view)}", but there is no such source or view; {hint}', "view"
            )
        topic, table = keys.text("topic"), keys.text("table")
        self._check_target(keys)
        self._check_location(keys, table)
        partition_by = keys.texts("partition_by")
        options = self._read_sink_format(keys) | keys.options("options")
        if partition_by:
            options = {"partition.by": ",".join(partition_by)} | options
        mode = keys.choice("mode", TABLE_MODES if "table" in keys else MODES, MODES[0])
        options = read_upsert_options(keys, mode) | options
        sink = SinkSpec(
            name=name,
            line=keys.line,
            view=view,
            is_table="table" in keys,
            target=self._beside(table) if table is not None else topic or "",
            mode=mode,
            key=keys.text("key"),
            options=options,
            delete=keys.text("delete"),
            maintenance=read_maintenance(keys),
        )
        keys.finish()
        return sink

    def _read_sink_format(self, keys: TomlTable) -> dict[str, str]:
        """Return the writer's options for the format of a table, or of the records of a topic."""
        if "table" in keys:
            return {"table.format": keys.choice("format", TABLE_FORMATS, TABLE_FORMATS[0])}
        topic_format = keys.choice("format", TOPIC_FORMATS, TOPIC_FORMATS[0])
        if topic_format == "json":
            return {}
        if self._registry is None:
            keys.add_problem(f'{".".join(keys.path)}.format = "{topic_format}" needs schema_registry, a URL', "format")
        return {"value.format": topic_format, "schema.registry.url": self._registry or ""}

    def _check_target(self, keys: TomlTable) -> None:
        name = ".".join(keys.path)
        if "topic" in keys and "table" in keys:
            keys.add_problem(f"{name} has both a topic and a table; write two sinks", "table")
            return
        if "topic" not in keys and "table" not in keys:
            keys.add_problem(f"{name} has neither a topic nor a table; write one of them")
            return
        is_table = "table" in keys
        for other in TOPIC_ONLY if is_table else TABLE_ONLY:
            if other in keys:
                of, this = ("topic", "table") if is_table else ("table", "topic")
                keys.add_problem(f"{name}.{other} is for a {of}, and this sink has a {this}", other)

    def _check_location(self, keys: TomlTable, table: str | None) -> None:
        if table is not None:
            try:
                parse_location(table)
            except OptionError as error:
                keys.add_problem(f"{'.'.join(keys.path)}.table: {error.reason}", "table")

    def _read_dead_letters(self, top: TomlTable, sources: Sequence[SourceSpec]) -> str | None:
        keys = top.table("dead_letters")
        if keys is None:
            return None
        topic = keys.required("topic", 'topic = "orders-dead"')
        if topic and any(_reads(source, topic) for source in sources):
            keys.refuse("topic", "a topic that no source reads: a dead letter would fail to parse again")
        keys.finish()
        return topic or None

    def _named(self, top: TomlTable, kind: str) -> list[TomlTable]:
        """Return the tables [kind.name]. Names must be valid as SQL identifiers without quotes."""
        outer = top.table(kind)
        if outer is None:
            return []
        tables = [keys for name in outer.names() if (keys := outer.table(name)) is not None]
        for keys in tables:
            if not _NAME.fullmatch(keys.path[-1]):
                keys.add_problem(
                    f"[{printable('.'.join(keys.path))}] must be named with letters, digits and underscores"
                )
        return tables

    def _add_view(self, keys: TomlTable, name: str, line: int) -> None:
        lower = name.lower()
        if not _NAME.fullmatch(name) and keys.path == ("views",):
            keys.refuse("name", "letters, digits and underscores")
        elif lower in map(str.lower, self._view_lines):
            keys.add_problem(f"there are two sources or views named {name}; the names must differ")
        else:
            self._view_lines[name] = line

    def _beside(self, path: str) -> str:
        return resolve_beside(self._directory, path)


def _reads(source: SourceSpec, topic: str) -> bool:
    option, text = source.subscription
    if option == "subscribe":
        return topic in text.split(",")
    try:
        return topic_pattern(text).fullmatch(topic) is not None
    except ValueError:
        # The read options report the invalid pattern.
        return False


def _read_duration_ms(keys: TomlTable, name: str, text: str | None, must_be: str) -> int | None:
    """Return the duration `text` in ms; None if there is none, or after reporting that it is invalid."""
    try:
        return None if text is None else read_duration_ms(name, text)
    except OptionError:
        keys.refuse(name, must_be)
        return None


def _lines_of_views(text: str, lines: Lines, count: int) -> list[Lines]:
    """Return the key lines of each table [[views]], whose keys all have the same path.

    The text is split before each header, and the pieces are parsed one by one.
    """
    rows = text.split("\n")
    starts = [number for number, row in enumerate(rows) if _VIEWS_HEADER.match(row)]
    if len(starts) != count:
        # Views are written in another syntax, or a string looks like a header.
        return [lines] * count
    lines_by_view: list[Lines] = []
    for start, end in zip(starts, [*starts, len(rows)][1:], strict=True):
        piece = lines_of_keys("\n".join(rows[start:end]))
        lines_by_view.append({path: line + start for path, line in piece.items() if path[0] == "views"})
    return lines_by_view
