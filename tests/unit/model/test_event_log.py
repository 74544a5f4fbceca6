"""Structured logging: the records that calls make, and that every call site has a constant event."""

import ast
import logging
import re
from pathlib import Path

import pytest

from logbrook.model.event_log import LogEvent, event_logger, observe_events
from tests.syntax import syntax_tree

SOURCES = Path(__file__).parents[3] / "src" / "logbrook"
LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}
LOG_WORDS = re.compile(r"\b_logger\b|\b_?warnings\b")
# Keys of a JSON line that are not fields.
RESERVED = {"ts", "level", "logger", "event", "exception"}
# What gives a logger of the standard library, or logs with its root logger.
LOGGERS = {*LEVELS, "getLogger", "log", "warn", "fatal", "root"}
# The event logger itself, and modules that set levels and handlers or silence libraries. All others log events.
CONFIGURES_LOGS = {
    "model/event_log.py",
    "server/log_levels.py",
    "server/logs.py",
    "spark/jvm.py",
    "spark/pipeline/command.py",
    "testing/chaos/python_clients.py",
    "testing/kill/clients.py",
    "testing/simulation/__main__.py",
}


@pytest.mark.parametrize("level", sorted(LEVELS - {"exception"}))
def test_a_record_carries_the_event_and_its_fields(caplog: pytest.LogCaptureFixture, level: str) -> None:
    caplog.set_level(logging.DEBUG)
    getattr(event_logger("logbrook.x"), level)("topic created", topic="orders", partitions=3)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("logbrook.x", level.upper())
    assert record.msg == LogEvent("topic created", {"topic": "orders", "partitions": 3})
    assert record.funcName == "test_a_record_carries_the_event_and_its_fields"


def test_other_handlers_append_the_fields_to_the_event(caplog: pytest.LogCaptureFixture) -> None:
    event_logger("logbrook.x").warning("100% full", path="a\nb")
    assert caplog.messages == [r"100% full path='a\nb'"]


def test_observers_see_all_events_whatever_the_level() -> None:
    logger, seen = event_logger("logbrook.x"), list[tuple[str, int, LogEvent, BaseException | None]]()
    error = OSError("disk full")
    with observe_events(lambda *event: seen.append(event)):
        logger.debug("topic created", topic="orders")
        logger.error("failed", exc_info=error)
        try:
            raise error
        except OSError:
            logger.exception("failed again")
    logger.info("not observed any more")
    assert seen == [
        ("logbrook.x", logging.DEBUG, LogEvent("topic created", {"topic": "orders"}), None),
        ("logbrook.x", logging.ERROR, LogEvent("failed", {}), error),
        ("logbrook.x", logging.ERROR, LogEvent("failed again", {}), error),
    ]


def test_exceptions_are_part_of_the_record(caplog: pytest.LogCaptureFixture) -> None:
    logger = event_logger("logbrook.x")
    error = OSError("disk full")
    try:
        raise error
    except OSError:
        logger.exception("failed")
    logger.error("failed", exc_info=error)
    logger.critical("failed", exc_info=error)
    for record in caplog.records:
        assert record.exc_info is not None
        assert record.exc_info[1] is error


def test_a_level_that_is_off_makes_no_record(caplog: pytest.LogCaptureFixture) -> None:
    event_logger("logbrook.x").debug("detail")
    assert caplog.records == []


@pytest.fixture(scope="module")
def logging_calls() -> list[tuple[str, ast.Call]]:
    """Return the place and the call of each call site."""
    # Only files with these words have one; the others, two thirds of the text, are not parsed.
    texts = [(path, text) for path in SOURCES.rglob("*.py") if LOG_WORDS.search(text := path.read_text())]
    return [
        (f"{path.name}:{node.lineno}", node)
        for path, text in texts
        for node in ast.walk(syntax_tree(text))
        if isinstance(node, ast.Call) and is_logging_call(node)
    ]


def is_logging_call(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr in LEVELS:
        return ast.unparse(call.func.value) == "_logger"
    # RateLimitedWarnings, whose first argument is the key.
    return call.func.attr == "warn" and ast.unparse(call.func.value).endswith((".warnings", "._warnings"))


def test_every_call_site_has_a_constant_event_and_free_field_names(logging_calls: list[tuple[str, ast.Call]]) -> None:
    assert len(logging_calls) > 30
    for place, call in logging_calls:
        event = call.args[-1]
        assert isinstance(event, ast.Constant), place
        assert isinstance(event.value, str), place
        assert not {keyword.arg for keyword in call.keywords} & RESERVED, place


def test_only_modules_that_configure_logs_use_the_loggers_of_the_standard_library() -> None:
    users = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if "logging" in (text := path.read_text()) and any(map(is_direct_logging, ast.walk(syntax_tree(text))))
    }
    assert users == CONFIGURES_LOGS


@pytest.mark.parametrize(
    "text",
    [
        "logging.getLogger(__name__)",
        "logging.getLogger(__name__).warning('a')",
        "logging.warning('a')",
        "logging.log(30, 'a')",
        "from logging import getLogger as get",
        "import logging as log",
    ],
)
def test_direct_logging_is_found(text: str) -> None:
    assert any(map(is_direct_logging, ast.walk(syntax_tree(text))))


def is_direct_logging(node: ast.AST) -> bool:
    """Return True if the node gets a logger of the standard library, or logs with the root logger."""
    match node:
        case ast.ImportFrom(module="logging", names=names):
            return any(name.name in LOGGERS for name in names)
        case ast.Import(names=names):
            # Under another name its uses are not found.
            return any(name.name == "logging" and name.asname is not None for name in names)
        case ast.Attribute(value=ast.Name("logging"), attr=attribute):
            return attribute in LOGGERS
    return False


def test_every_event_is_documented(logging_calls: list[tuple[str, ast.Call]]) -> None:
    text = (SOURCES.parents[1] / "docs" / "OPERATIONS.md").read_text()
    rows = re.findall(r"^\| (`.*`) \| (?:debug|info|warning|error|critical)(?:, \w+)? \|", text, re.MULTILINE)
    documented = {event for row in rows for event in re.findall("`([^`]+)`", row)}
    assert documented == {call.args[-1].value for _, call in logging_calls if isinstance(call.args[-1], ast.Constant)}
