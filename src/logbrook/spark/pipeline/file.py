'''A pipeline's file.

    name = "orders"                          # names the consumer groups: orders-totals, orders-archive
    bootstrap_servers = "127.0.0.1:9092"     # --bootstrap-servers wins
    checkpoint = "checkpoint"                # beside the file; the default. --checkpoint wins
    trigger = "10s"                          # the default; or "once": take what is there and end
    reports = "__logbrook_pipelines"         # the default: the topic that is told how it is; or false. --reports wins

    [spark]                                  # optional
    master = "local[4]"                      # --master wins
    spark.sql.shuffle.partitions = 4         # any setting of Spark

    [sources.orders]                         # a view of that name
    topic = "orders"                         # or topics = ["a", "b"], or pattern = "orders-.*"
    format = "json"                          # the default; or string, bytes: then there is one column, value
    schema = "id BIGINT, amount DOUBLE, at TIMESTAMP"
    starting = "earliest"                    # the default; or latest, "-1h", offsets as JSON; only for the first start
    watermark = { column = "at", delay = "10 minutes" }
    unique = ["id"]                          # of rows that are alike in these columns the first, within the watermark
    options = { maxOffsetsPerTrigger = 100000 }      # any option of the reader

    [[views]]                                # in order; each may use the sources and the views before it
    name = "per_minute"
    sql = """SELECT window(at, '1 minute').start AS minute, sum(amount) AS total FROM orders GROUP BY 1"""

    [sinks.totals]
    view = "per_minute"                      # a view or a source
    topic = "totals"                         # each row as a JSON object, unless the view has a column `value`
    key = "minute"                           # the column that makes the key
    mode = "update"                          # append is the default
    options = { compression = "zstd" }       # any option of the writer

    [sinks.archive]
    view = "orders"
    table = "tables/orders"                  # beside the file
    format = "delta"                         # the default; or iceberg, parquet
    partition_by = ["day"]

    [dead_letters]                           # without it a record that does not parse stops the pipeline
    topic = "orders-dead"

A source has the columns of its schema and `_key`, `_topic`, `_partition`, `_offset` and `_timestamp`. All that is wrong
with a file is told at once.
'''

import os
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from logbrook.config.errors import Problem
from logbrook.config.printable import printable
from logbrook.config.toml_lines import TomlSyntaxError, lines_of_keys, parse_toml
from logbrook.pipelines.report import REPORTS_TOPIC
from logbrook.spark.errors import OptionError
from logbrook.spark.pipeline.errors import PipelineRefusedError
from logbrook.spark.pipeline.keys import Keys, Lines, Notes
from logbrook.spark.pipeline.spec import Pipeline, RowFormat, Sink, Source, View, Watermark
from logbrook.spark.positions import read_duration_ms

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GROUP_NAME = re.compile(r"[A-Za-z0-9._-]+")
_VIEWS_HEADER = re.compile(r"\s*\[\[\s*views\s*\]\]")
_TRIGGER = "10s"
MODES = ("append", "update")
TABLE_FORMATS = ("delta", "iceberg", "parquet")
TABLE_ONLY = ("format", "partition_by")
TOPIC_ONLY = ("key",)


def read_pipeline(path: str, *, bootstrap_servers: str | None = None, checkpoint: str | None = None) -> Pipeline:
    """The pipeline in the file at `path`, with what the command line says. Raises PipelineRefusedError."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise PipelineRefusedError([Problem(printable(path), f"it cannot be read: {error.strerror}")]) from error
    try:
        document = parse_toml(content)
    except TomlSyntaxError as error:
        what = f"this is not TOML: {error.reason}"
        raise PipelineRefusedError([Problem(printable(path), what, error.line)]) from None
    reader = _FileReader(path, document, content.decode())
    pipeline = reader.read(bootstrap_servers, checkpoint)
    if reader.notes.problems:
        raise PipelineRefusedError(sorted(reader.notes.problems, key=lambda problem: problem.line))
    return pipeline


class _FileReader:
    def __init__(self, path: str, document: Mapping[str, Any], text: str) -> None:
        self.notes = Notes(printable(path), [])
        self._directory = os.path.dirname(os.path.abspath(path))
        self._lines = lines_of_keys(text)
        self._text = text
        self._document = document
        self._views_at: dict[str, int] = {}

    def read(self, bootstrap_servers: str | None, checkpoint: str | None) -> Pipeline:
        top = Keys(self.notes, self._lines, (), self._document)
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
        reports = top.text_unless_false("reports", REPORTS_TOPIC)
        master, conf = self._read_spark(top)
        sources = self._read_sources(top)
        views = self._read_views(top)
        sinks = self._read_sinks(top)
        dead_letters = self._read_dead_letters(top, sources)
        top.finish()
        return Pipeline(
            path=self.notes.file,
            name=name,
            bootstrap_servers=servers,
            checkpoint=below if checkpoint is None else _absolute(os.getcwd(), checkpoint),
            trigger_ms=trigger_ms,
            master=master,
            conf=conf,
            sources=sources,
            views=views,
            sinks=sinks,
            dead_letters=dead_letters,
            reports=reports,
        )

    def _read_trigger(self, top: Keys) -> int | None:
        text = top.text("trigger", _TRIGGER) or _TRIGGER
        if text == "once":
            return None
        try:
            return read_duration_ms("trigger", text)
        except OptionError:
            top.refuse("trigger", 'once, or a duration such as "10s" or "5 minutes"')
            return None

    def _read_spark(self, top: Keys) -> tuple[str | None, dict[str, str]]:
        conf = top.options("spark")
        master = conf.pop("master", None)
        for name in conf:
            if not name.startswith("spark."):
                top.note(f"spark.{printable(name)} is not known; there are master and what begins with spark.", "spark")
        return master, conf

    def _read_sources(self, top: Keys) -> tuple[Source, ...]:
        tables = self._named(top, "sources")
        if not tables:
            top.note("there is no source; a table such as [sources.orders] says what is read")
        return tuple(self._read_source(keys) for keys in tables)

    def _read_source(self, keys: Keys) -> Source:
        name = keys.path[-1]
        self._add_view(keys, name, keys.line)
        row_format = RowFormat(keys.choice("format", list(RowFormat), RowFormat.JSON))
        schema = keys.text("schema")
        if row_format is RowFormat.JSON and schema is None:
            keys.note(f'sources.{name}.schema is missing; JSON needs one, such as "id BIGINT, at TIMESTAMP"')
        elif row_format is not RowFormat.JSON and "schema" in keys:
            keys.note(f"sources.{name}.schema is for the format json, and this is {row_format}", "schema")
        source = Source(
            name=name,
            line=keys.line,
            subscription=self._read_subscription(keys),
            format=row_format,
            schema=schema,
            starting=keys.text("starting", "earliest") or "earliest",
            watermark=self._read_watermark(keys),
            unique=keys.texts("unique"),
            options=keys.options("options"),
        )
        if source.unique and source.watermark is None:
            keys.note(f"sources.{name}.unique needs a watermark, which says for how long rows are remembered", "unique")
        keys.finish()
        return source

    def _read_subscription(self, keys: Keys) -> tuple[str, str]:
        topic, topics, pattern = keys.text("topic"), keys.texts("topics"), keys.text("pattern")
        given = [name for name in ("topic", "topics", "pattern") if name in keys]
        if not given:
            keys.note(f"{'.'.join(keys.path)} has no topic; write topic, topics or pattern")
        for name in given[1:]:
            keys.note(f"{'.'.join(keys.path)} has both {given[0]} and {name}; one of them says what is read", name)
        if pattern is not None:
            return "subscribePattern", pattern
        return "subscribe", ",".join([topic] if topic is not None else topics)

    def _read_watermark(self, keys: Keys) -> Watermark | None:
        table = keys.table("watermark")
        if table is None:
            return None
        column = table.required("column", 'column = "at"')
        delay = table.required("delay", 'delay = "10 minutes"')
        table.finish()
        return Watermark(column, delay)

    def _read_views(self, top: Keys) -> tuple[View, ...]:
        tables = top.tables("views")
        lines = _lines_of_views(self._text, self._lines, len(tables))
        keys = [Keys(self.notes, lines[number], ("views",), table) for number, table in enumerate(tables)]
        return tuple(self._read_view(one) for one in keys)

    def _read_view(self, keys: Keys) -> View:
        name = keys.required("name", 'name = "per_minute"')
        if name:
            self._add_view(keys, name, keys.line)
        view = View(name, keys.line_of("sql"), keys.required("sql", 'sql = "SELECT * FROM orders"'))
        keys.finish()
        return view

    def _read_sinks(self, top: Keys) -> tuple[Sink, ...]:
        tables = self._named(top, "sinks")
        if not tables:
            top.note("there is no sink; a table such as [sinks.totals] says where rows go")
        return tuple(self._read_sink(keys) for keys in tables)

    def _read_sink(self, keys: Keys) -> Sink:
        name = keys.path[-1]
        view = keys.required("view", 'view = "orders"')
        if view and view not in self._views_at:
            nearest = get_close_matches(view, self._views_at, 1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(self._views_at) or 'none'}"
            keys.note(f'sinks.{name}.view = "{printable(view)}", but there is no such source or view; {hint}', "view")
        topic, table = keys.text("topic"), keys.text("table")
        self._check_target(keys)
        partition_by = keys.texts("partition_by")
        options = keys.options("options")
        if "table" in keys:
            options = {"table.format": keys.choice("format", TABLE_FORMATS, TABLE_FORMATS[0])} | options
        else:
            keys.text("format")
        if partition_by:
            options = {"partition.by": ",".join(partition_by)} | options
        sink = Sink(
            name=name,
            line=keys.line,
            view=view,
            is_table="table" in keys,
            target=self._beside(table) if table is not None else topic or "",
            mode=keys.choice("mode", MODES, MODES[0]),
            key=keys.text("key"),
            options=options,
        )
        if sink.is_table and sink.mode != MODES[0]:
            keys.refuse("mode", f"append: a table keeps each row that is written, and {sink.mode} writes a row again")
        keys.finish()
        return sink

    def _check_target(self, keys: Keys) -> None:
        name = ".".join(keys.path)
        if "topic" in keys and "table" in keys:
            keys.note(f"{name} has both a topic and a table; make two sinks of it", "table")
            return
        if "topic" not in keys and "table" not in keys:
            keys.note(f"{name} has neither a topic nor a table; write one of them")
            return
        is_table = "table" in keys
        for other in TOPIC_ONLY if is_table else TABLE_ONLY:
            if other in keys:
                of, this = ("topic", "table") if is_table else ("table", "topic")
                keys.note(f"{name}.{other} is for a {of}, and this sink has a {this}", other)

    def _read_dead_letters(self, top: Keys, sources: Sequence[Source]) -> str | None:
        keys = top.table("dead_letters")
        if keys is None:
            return None
        topic = keys.required("topic", 'topic = "orders-dead"')
        if topic and any(_reads(source, topic) for source in sources):
            keys.refuse("topic", "a topic that is not read, because a dead letter would be one again")
        keys.finish()
        return topic or None

    def _named(self, top: Keys, kind: str) -> list[Keys]:
        """The tables [kind.name], whose names are such as SQL takes without quotes."""
        outer = top.table(kind)
        if outer is None:
            return []
        found = [keys for name in outer.names() if (keys := outer.table(name)) is not None]
        for keys in found:
            if not _NAME.fullmatch(keys.path[-1]):
                keys.note(f"[{printable('.'.join(keys.path))}] must be named with letters, digits and underscores")
        return found

    def _add_view(self, keys: Keys, name: str, line: int) -> None:
        lower = name.lower()
        if not _NAME.fullmatch(name) and keys.path == ("views",):
            keys.refuse("name", "letters, digits and underscores")
        elif lower in map(str.lower, self._views_at):
            keys.note(f"there are two sources or views named {name}; the names must differ")
        else:
            self._views_at[name] = line

    def _beside(self, path: str) -> str:
        return _absolute(self._directory, path)


def _reads(source: Source, topic: str) -> bool:
    option, text = source.subscription
    if option == "subscribe":
        return topic in text.split(",")
    try:
        return re.fullmatch(text, topic) is not None
    except re.error:
        # The reader says so.
        return False


def _absolute(directory: str, path: str) -> str:
    """A path as it is meant from `directory`; a URI is left alone."""
    return path if "://" in path else os.path.normpath(os.path.join(directory, path))


def _lines_of_views(text: str, lines: Lines, count: int) -> list[Lines]:
    """For each of the tables [[views]] the lines of its keys, which share their paths with those of all others.

    So the text is cut before each of their headers, and the pieces are looked at one by one.
    """
    rows = text.split("\n")
    starts = [number for number, row in enumerate(rows) if _VIEWS_HEADER.match(row)]
    if len(starts) != count:
        # They are written in some other way, or a text within the file looks like a header.
        return [lines] * count
    found: list[Lines] = []
    for start, end in zip(starts, [*starts, len(rows)][1:], strict=True):
        piece = lines_of_keys("\n".join(rows[start:end]))
        found.append({path: line + start for path, line in piece.items() if path[0] == "views"})
    return found
