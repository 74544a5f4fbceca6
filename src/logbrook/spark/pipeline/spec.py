"""A pipeline, as its file says it. Each part knows its line, for what turns out to be wrong with it later."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class RowFormat(StrEnum):
    """What the value of a record is."""

    JSON = "json"
    STRING = "string"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Watermark:
    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class Source:
    """`subscription` is the reader's option that says which topics: its name and its value."""

    name: str
    line: int
    subscription: tuple[str, str]
    format: RowFormat
    schema: str | None
    starting: str
    watermark: Watermark | None
    unique: tuple[str, ...]
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class View:
    name: str
    line: int
    sql: str


@dataclass(frozen=True, slots=True)
class Sink:
    """`target` is a topic's name, or a table's directory."""

    name: str
    line: int
    view: str
    is_table: bool
    target: str
    mode: str
    key: str | None
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`trigger_ms` is None for a pipeline that takes what is there and ends; `path` is the file, for messages.

    `reports` is the topic that is told how it is, None for none.
    """

    path: str
    name: str
    bootstrap_servers: str
    checkpoint: str
    trigger_ms: int | None
    master: str | None
    conf: Mapping[str, str]
    sources: tuple[Source, ...]
    views: tuple[View, ...]
    sinks: tuple[Sink, ...]
    dead_letters: str | None
    reports: str | None

    def group_of(self, query: str) -> str:
        """The consumer group whose offsets show how far a query is; also the query's name."""
        return f"{self.name}-{query}"

    def checkpoint_of_sink(self, sink: str) -> str:
        return f"{self.checkpoint}/sinks/{sink}"

    def checkpoint_of_dead_letters(self, source: str) -> str:
        return f"{self.checkpoint}/dead_letters/{source}"
