"""Short messages from Spark's exceptions. The texts are Spark 4.3's own, shortened in the middle."""

from importlib import import_module

import pytest

from logbrook.config.errors import Problem
from logbrook.spark import errors
from logbrook.spark.errors import (
    InvalidPipelineError,
    UnreachableSourceError,
    exit_code_of,
    find_logbrook_error,
    is_permanent,
    is_unreachable,
    sql_position_of,
    summarize_error,
)

HEAD = "[STREAM_FAILED] Query [id = 7945405a, runId = 49634d85] terminated with exception: "
TAIL = """ SQLSTATE: XXKST
=== Streaming Query ===
Identifier: orders-totals [id = 7945405a, runId = 49634d85]
Logical Plan:
+- raise_error(concat(logbrook.spark.errors.UnparsedRowError: the record at offset , cast(offset as string)))
"""
SOURCE = f"""{HEAD}[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform \
initialOffset: Traceback (most recent call last):
  File "/main/src/logbrook/spark/planner.py", line 55, in topics
    raise MissingTopicError(f"topic {{name!r}}", servers)
logbrook.spark.errors.MissingTopicError: there is no topic 'a' at 127.0.0.1:1; create it first, or correct the name
 SQLSTATE: 38000{TAIL}"""
CHAINED = f"""{HEAD}[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call):
  File "/main/src/logbrook/client/connection.py", line 3, in connect
logbrook.client.errors.ConnectFailedError: cannot connect to h:1: refused

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
logbrook.spark.errors.UnreachableError: the cluster at h:1 cannot be asked: cannot connect to h:1: refused
 SQLSTATE: 38000{TAIL}"""
RAISED = (
    f"{HEAD}[USER_RAISED_EXCEPTION] logbrook.spark.errors.UnparsedRowError: "
    f"the record at offset 2 of orders-0 does not parse: the value is null; with x SQLSTATE: P0001{TAIL}"
)
DIVISION = f"""{HEAD}[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate it. SQLSTATE: 22012
== SQL (line 1, position 1) ==
1/(offset-offset) as x
{TAIL}"""
COLUMN = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `x` cannot be \
resolved. Did you mean one of the following? [`key`, `topic`]. SQLSTATE: 42703; line 2 pos 7;
'CreateViewCommand `w`, SELECT x FROM src, false, true, LocalTempView, UNSUPPORTED, false
"""
SYNTAX = """
[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'. SQLSTATE: 42601 (line 2, pos 0)

== SQL ==
SELEC
^^^
"""
STAGE = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: "
    "Lost task 0.0 in stage 1.0 (TID 1) (127.0.0.1 executor driver): java.lang.IllegalStateException: no more room\n"
    "\tat org.apache.spark.x(y.scala:1)"
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (SOURCE, "there is no topic 'a' at 127.0.0.1:1; create it first, or correct the name"),
        (CHAINED, "the cluster at h:1 cannot be asked: cannot connect to h:1: refused"),
        (RAISED, "the record at offset 2 of orders-0 does not parse: the value is null; with x"),
        (DIVISION, "Division by zero. Use `try_divide` to tolerate it"),
        (
            COLUMN,
            "A column, variable, or function parameter with name `x` cannot be resolved. "
            "Did you mean one of the following? [`key`, `topic`]",
        ),
        (SYNTAX, "Syntax error at or near 'SELEC'"),
        (STAGE, "no more room"),
        ("Traceback (most recent call last):\n  File x\nValueError: too small\n", "ValueError: too small"),
        ("just so", "just so"),
    ],
)
def test_the_sentence_is_found(text: str, sentence: str) -> None:
    assert summarize_error(text) == sentence


def test_a_logbrook_error_is_found_by_its_name() -> None:
    error = find_logbrook_error(CHAINED)
    assert error is not None
    assert error[0] == "UnreachableError"
    assert find_logbrook_error(DIVISION) is None


def test_an_error_without_a_message_has_its_class_name() -> None:
    assert summarize_error(ValueError()) == "ValueError"


@pytest.mark.parametrize(("text", "position"), [(COLUMN, (2, 7)), (SYNTAX, (2, 0)), (DIVISION, None)])
def test_the_position_within_a_query_is_found(text: str, position: tuple[int, int] | None) -> None:
    assert sql_position_of(text) == position


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SOURCE, True),
        (CHAINED, False),
        (RAISED, True),
        (DIVISION, True),
        (COLUMN, True),
        (STAGE, False),
        (f"{HEAD}Python worker failed to connect back.{TAIL}", False),
    ],
)
def test_errors_of_options_and_data_are_permanent(text: str, expected: bool) -> None:
    assert is_permanent(text) is expected


def test_every_permanent_error_exists() -> None:
    """The exception's name is all that its text contains."""
    names = set()
    for module in ("errors", "exactly_once", "schema", "schemas.errors", "stream_reader"):
        names |= set(vars(import_module(f"logbrook.spark.{module}")))
    assert names >= errors._PERMANENT_ERRORS | errors._UNREACHABLE_ERRORS


def test_unreachable_servers_are_distinguished_from_invalid_options() -> None:
    registry = "logbrook.spark.schemas.errors.UnreachableRegistryError: the schema registry at http://h: it cannot be"
    assert [is_unreachable(text) for text in (CHAINED, registry, SOURCE, DIVISION)] == [True, True, False, False]
    assert exit_code_of(UnreachableSourceError([Problem("p.toml", "it does not answer", 1)])) == 3
    assert exit_code_of(InvalidPipelineError([Problem("p.toml", "a mistake", 1)])) == 2
