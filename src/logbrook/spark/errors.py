"""Errors of the Spark integration, the exit codes of its commands, and one-line summaries of Spark's own exceptions.

Every error message is one sentence that names the option, topic, table or query concerned and says what to do. Spark
wraps an exception of a Python worker in a page of text with the tracebacks of two languages; `summarize_error` extracts
the sentence from it.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from logbrook.model import LogbrookError
from logbrook.model.identifiers import Offset

if TYPE_CHECKING:
    # Not imported by the many small processes that plan and commit: it loads the settings of a broker.
    from logbrook.config.errors import Problem

# Exit codes of `logbrook pipeline run`, `archive`, `replay`, `audit` and `table`.
EXIT_INVALID = 2
EXIT_UNREACHABLE = 3
EXIT_FAILED = 4
EXIT_NO_SPARK = 5

# An error of this project as the last line of a Python traceback, or as the argument of SQL's raise_error.
_LOGBROOK_ERROR = re.compile(r"\blogbrook(?:\.\w+)+\.(\w+Error): ([^\n]*)")
_SQLSTATE = re.compile(r"\.?\s*SQLSTATE: \w{5}.*", re.DOTALL)
_SQLSTATE_CODE = re.compile(r"SQLSTATE: (\w{5})")
# Classes of SQLSTATE: feature not supported, cardinality, data, constraint, syntax or analysis.
_PERMANENT_SQLSTATES = frozenset({"0A", "21", "22", "23", "42"})
_PERMANENT_ERRORS = frozenset(
    {
        "CheckpointError",
        "CorruptRecordsError",
        "DataLossError",
        "IncompatibleSchemaError",
        "InvalidSchemaError",
        "MissingTopicError",
        "OptionError",
        "RecordError",
        "ReplayError",
        "SchemaError",
        "SchemaMismatchError",
        "TableError",
        "UnparsedRowError",
    }
)
_UNREACHABLE_ERRORS = frozenset({"UnreachableError", "UnreachableRegistryError"})
_SQL_POSITION = re.compile(r"SQLSTATE: \w{5}[;.]?\s*(?:\(|;\s*)?line (\d+),? pos (\d+)")
_WRAPPERS = (
    re.compile(r"\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ", re.DOTALL),
    re.compile(r"\[JOB_ABORTED\w*\] [^\n]*?: "),
    re.compile(r"Job aborted due to stage failure: Task .*?most recent failure: Lost task [^\n]*?\): ", re.DOTALL),
)
_JAVA_CLASS = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
# The query plan follows, which quotes every raise_error of the query and must not be searched.
_PLAN_HEADING = "\n=== Streaming Query ==="
_SUMMARY_LENGTH_MAX = 600


class SparkError(LogbrookError):
    """Base class of the errors of `logbrook.spark`."""


class OptionError(SparkError):
    """An option of a data source is unknown, invalid, or conflicts with another."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"option {name!r}: {reason}")
        self.name = name
        self.reason = reason


class MissingTopicError(SparkError):
    """A topic or a pattern of topics does not exist. `topics` reads "topic 'a'" or "topic like 'a.*'"."""

    def __init__(self, topics: str, servers: str) -> None:
        super().__init__(f"there is no {topics} at {servers}; create it first, or correct the name")


class UnreachableError(SparkError):
    """The cluster did not answer, or answered with an error that retries do not resolve."""

    def __init__(self, servers: str, reason: str) -> None:
        super().__init__(f"the cluster at {servers} cannot be asked: {reason}")


class DataLossError(SparkError):
    """Offsets that the query had to read no longer exist, and `failOnDataLoss` is true."""

    def __init__(self, loss: str) -> None:
        super().__init__(f"{loss}; to continue with the remaining records, set failOnDataLoss to false")


class CorruptRecordsError(SparkError):
    """A fetched record batch fails its checksum or cannot be decoded."""

    def __init__(self, partition: str, offset: Offset, reason: str) -> None:
        super().__init__(f"{partition} has a batch at or after offset {offset} that cannot be read: {reason}")


class RecordError(SparkError):
    """A row of the sink cannot be written as a record."""

    def __init__(self, topic: str | None, partition: int | None, key_length: int | None, reason: str) -> None:
        where = "no topic" if topic is None else f"topic {topic!r}"
        where += "" if partition is None else f", partition {partition},"
        key = "without a key" if key_length is None else f"with a key of {key_length} bytes"
        super().__init__(f"a record for {where} {key} cannot be written: {reason}")
        self.topic = topic
        self.partition = partition
        self.key_length = key_length


class JavaError(SparkError):
    """No Java runtime that Spark can use was found."""


class TableError(SparkError):
    """A table cannot be written, read or maintained as requested."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(f"table {table!r}: {reason}")


class SchemaMismatchError(TableError):
    """A column of the DataFrame does not fit the table's. A type is None on the side that lacks the column."""

    def __init__(self, table: str, column: str, frame_type: str | None, table_type: str | None, hint: str = "") -> None:
        frame_side = f"is {frame_type} in the frame" if frame_type else "is not in the frame"
        table_side = f"is {table_type} in the table" if table_type else "is not in the table"
        super().__init__(table, f"column {column!r} {frame_side} and {table_side}{hint}")


class CommitConflictError(TableError):
    """Another writer committed first: reload the table and check again before the next attempt."""

    def __init__(self, table: str) -> None:
        super().__init__(table, "another commit came first")


class TableChangedError(TableError):
    """Another writer removed files of the table while they were compacted."""

    def __init__(self, table: str, files: int) -> None:
        super().__init__(table, f"{files} files were removed by another writer during the compaction; try again")


class CommitUnknownError(TableError):
    """A commit failed in a way that does not tell if it took effect, such as a lost answer: ask the table."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(table, f"a commit failed, and it is not known if it took effect: {reason}")


class PipelineError(SparkError):
    """Base class of the errors of `logbrook pipeline`."""


class InvalidPipelineError(PipelineError):
    """The pipeline's file or the command line is invalid; `problems` lists every finding."""

    def __init__(self, problems: "Sequence[Problem]") -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class UnreachableSourceError(InvalidPipelineError):
    """The pipeline cannot be checked, because a cluster or a schema registry that it reads from does not answer."""


class CheckpointExistsError(PipelineError):
    """`--from` was given for a pipeline whose checkpoint already holds offsets."""

    def __init__(self, start: str, reason: str) -> None:
        super().__init__(
            f"--from {start} is only for a pipeline that has not started yet, and {reason}; "
            "to read again, give an empty directory with --checkpoint; its rows are added to those already written"
        )


class UnparsedRowError(PipelineError):
    """A record does not match its source's format. Raised by SQL's raise_error under this class's name."""


class QueryFailedError(PipelineError):
    """A streaming query ended with an exception. `details` is Spark's full text."""

    def __init__(self, query: str, sentence: str, details: str) -> None:
        super().__init__(f"query {query!r} failed: {sentence}")
        self.details = details


class JvmEndedError(PipelineError):
    """The JVM of Spark has ended before the command, such as by the system's out-of-memory killer."""

    def __init__(self, exit_code: int) -> None:
        cause = f"was killed by signal {-exit_code}" if exit_code < 0 else f"has ended with exit code {exit_code}"
        super().__init__(f"Spark's JVM {cause}; start the command again, which continues from its checkpoint")
        self.exit_code = exit_code


class NoSparkError(PipelineError):
    """PySpark is not installed, or its JVM does not start."""


def exit_code_of(error: SparkError) -> int:
    """Return the exit code of a command that `error` ends."""
    match error:
        case QueryFailedError() | TableChangedError() | JvmEndedError():
            return EXIT_FAILED
        case MissingTopicError() | UnreachableError() | UnreachableSourceError():
            return EXIT_UNREACHABLE
        case NoSparkError() | JavaError():
            return EXIT_NO_SPARK
    return EXIT_INVALID


def find_logbrook_error(text: str) -> tuple[str, str] | None:
    """Return class name and message of the last error of this project in `text`, or None.

    In a chain of exceptions the last one is the outermost.
    """
    errors = _LOGBROOK_ERROR.findall(text.partition(_PLAN_HEADING)[0])
    return (errors[-1][0], _SQLSTATE.sub("", errors[-1][1]).strip()) if errors else None


def summarize_error(error: BaseException | str) -> str:
    """Return one line: the message of a Logbrook error inside `error`, else Spark's message without its wrappers."""
    text = str(error).partition(_PLAN_HEADING)[0].strip()
    if logbrook_error := find_logbrook_error(text):
        return logbrook_error[1]
    for wrapper in _WRAPPERS:
        text = wrapper.sub("", text, count=1)
    text = _JAVA_CLASS.sub("", text.strip())
    text = _SQLSTATE.sub("", _CONDITION.sub("", text)).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith("Traceback (most recent call last)"):
        return lines[-1][:_SUMMARY_LENGTH_MAX]
    return (lines[0] if lines else type(error).__name__)[:_SUMMARY_LENGTH_MAX]


def is_permanent(error: BaseException | str) -> bool:
    """Return True if a query that `error` ended would end in the same way after a restart from its checkpoint.

    That is so for errors of options, schemas, records and data. Others, such as an unreachable cluster or a Python
    process that did not start in time, may not occur again.
    """
    text = str(error).partition(_PLAN_HEADING)[0]
    if logbrook_error := find_logbrook_error(text):
        return logbrook_error[0] in _PERMANENT_ERRORS
    return any(state[:2] in _PERMANENT_SQLSTATES for state in _SQLSTATE_CODE.findall(text))


def is_unreachable(error: BaseException | str) -> bool:
    """Return True if `error` is that of a cluster or a schema registry that does not answer."""
    logbrook_error = find_logbrook_error(str(error))
    return logbrook_error is not None and logbrook_error[0] in _UNREACHABLE_ERRORS


def sql_position_of(error: BaseException | str) -> tuple[int, int] | None:
    """Return line (from 1) and column (from 0) of the SQL text that Spark's parser points at, or None."""
    match = _SQL_POSITION.search(str(error))
    return (int(match[1]), int(match[2])) if match else None
