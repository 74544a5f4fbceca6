"""The broker's own log: the format of lines, and untrusted input in them."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbrook.config import LogFormat, LoggingConfig, LogLevel
from logbrook.model import TopicPartition
from logbrook.model.event_log import EventLogger, LogEvent, event_logger
from logbrook.server.logs import HumanFormatter, JsonFormatter, RateLimitedWarnings, configure_logging
from logbrook.testing.clock import FakeClock

CREATED = 1_700_000_000.1239
HUMAN = HumanFormatter(coloured=False)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def restored_loggers() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("logbrook")
    handlers, root_level, our_level = list(root.handlers), root.level, ours.level
    yield
    root.handlers[:] = handlers
    root.setLevel(root_level)
    ours.setLevel(our_level)


def record(event: str, *, level: int = logging.INFO, exc_info: Any = None, **fields: Any) -> logging.LogRecord:
    made = logging.LogRecord("logbrook.server.x", level, __file__, 1, LogEvent(event, fields), (), exc_info)
    made.created = CREATED
    return made


def foreign_record(message: str, *arguments: Any) -> logging.LogRecord:
    """A record of a library that uses `logging` directly."""
    return logging.LogRecord("elsewhere", logging.WARNING, __file__, 1, message, arguments, None)


def caught(error: Exception) -> Any:
    try:
        raise error
    except Exception:
        return sys.exc_info()


def test_a_json_line_has_time_level_logger_event_and_the_fields_as_keys() -> None:
    line = JsonFormatter().format(record("topic created", topic="orders", partitions=3, ratio=0.5))
    assert json.loads(line) == {
        "ts": "2023-11-14T22:13:20.123Z",
        "level": "info",
        "logger": "logbrook.server.x",
        "event": "topic created",
        "topic": "orders",
        "partitions": 3,
        "ratio": 0.5,
    }


def test_a_json_line_without_fields_or_exception_has_neither() -> None:
    assert set(json.loads(JsonFormatter().format(record("started")))) == {"ts", "level", "logger", "event"}


def test_a_field_does_not_replace_time_level_logger_or_event() -> None:
    line = json.loads(JsonFormatter().format(record("started", ts="0", logger="other")))
    assert (line["ts"], line["logger"]) == ("2023-11-14T22:13:20.123Z", "logbrook.server.x")


def test_the_message_of_a_library_is_the_event() -> None:
    made = foreign_record("%d tasks", 3)
    assert json.loads(JsonFormatter().format(made))["event"] == "3 tasks"
    assert HUMAN.format(made).endswith(" warning 3 tasks")


def test_a_partition_is_written_as_text() -> None:
    assert HUMAN.format(record("m", partition=TopicPartition("orders", 3))).endswith(" m partition=orders-3")


def test_an_exception_is_a_string_in_json() -> None:
    line = JsonFormatter().format(record("failed", exc_info=caught(OSError("disk\nfull"))))
    assert "\n" not in line
    assert json.loads(line)["exception"].endswith("OSError: disk\nfull")


def test_a_line_for_people_has_time_level_message_and_fields() -> None:
    line = HUMAN.format(record("topic created", topic="orders", partitions=3, none=None, ok=True, names=["a", "b"]))
    facts = 'topic=orders partitions=3 none=null ok=true names=["a", "b"]'
    assert line == f"2023-11-14 22:13:20.123Z info    topic created {facts}"


def test_a_terminal_gets_the_level_in_colour() -> None:
    line = HumanFormatter(coloured=True).format(record("careful", level=logging.WARNING, topic="t"))
    assert line == ("\x1b[2m2023-11-14 22:13:20.123Z\x1b[0m \x1b[33mwarning\x1b[0m careful \x1b[2mtopic=\x1b[0mt")


def test_an_exception_for_people_is_indented_below_its_line() -> None:
    first, *others = HUMAN.format(record("failed", exc_info=caught(OSError("disk full")))).split("\n")
    assert first.endswith(" failed")
    assert others[0] == "    Traceback (most recent call last):"
    assert others[-1] == "    OSError: disk full"


def test_the_text_of_an_exception_forges_no_line() -> None:
    forged = "x\n2023-11-14 22:13:20.123Z info    all is well\r\x1b[2K"
    lines = HUMAN.format(record("failed", exc_info=caught(ValueError(forged)))).split("\n")
    assert all(line.startswith("    ") and line.isprintable() for line in lines[1:])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("orders", "orders"),
        ("two words", '"two words"'),
        ("", '""'),
        ("a level=error", '"a level=error"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("a\nb", "a\\nb"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\u202eright to left", '"\\u202eright to left"'),
        ("back\\slash", "back\\\\slash"),
        (b"\x00raw", "b'\\\\x00raw'"),
        ({"a": "\x9b1m"}, '{"a": "\\x9b1m"}'),
        (float("nan"), "nan"),
        ("x" * 1_001, "x" * 1_000 + "..."),
    ],
)
def test_a_value_cannot_pass_for_anything_else(value: object, shown: str) -> None:
    assert HUMAN.format(record("m", key=value)).endswith(f" m key={shown}")


@given(st.text(max_size=100), st.text(max_size=100))
def test_a_record_is_one_printable_line_whatever_its_values(argument: str, value: str) -> None:
    for made in (record("m", value=value, nested={value: [value]}), foreign_record("from %s", argument)):
        assert HUMAN.format(made).isprintable()
        line = JsonFormatter().format(made)
        assert line.isascii()
        assert "\n" not in line
    assert json.loads(JsonFormatter().format(record("m", value=value)))["value"] == value


def test_long_log_values_are_truncated_and_deep_ones_become_text() -> None:
    deep: Any = "end"
    for _ in range(10):
        deep = [deep]
    line = json.loads(JsonFormatter().format(record("m", many=list(range(100)), deep=deep)))
    assert len(json.loads(JsonFormatter().format(foreign_record("m" * 2_000)))["event"]) == 1_003
    assert line["many"] == list(range(50))
    assert line["deep"] == [[[str([[[[[[["end"]]]]]]])]]]


def test_the_order_of_a_set_does_not_depend_on_chance() -> None:
    assert HUMAN.format(record("m", names=frozenset("cab"))).endswith('names=["a", "b", "c"]')


def test_not_a_number_does_not_spoil_json() -> None:
    line = JsonFormatter().format(record("m", value=float("inf")))
    assert json.loads(line, parse_constant=pytest.fail)["value"] == "inf"


@pytest.mark.parametrize("name", ["password", "sasl_password", "client_secret", "authToken", "api_key", "credentials"])
def test_a_field_whose_name_suggests_a_secret_is_not_written(name: str) -> None:
    fields: dict[str, Any]
    for fields in ({name: "hunter2"}, {"config": {name: "hunter2"}}):
        made = record("m", **fields)
        for formatter in (HUMAN, JsonFormatter()):
            line = formatter.format(made)
            assert "hunter2" not in line
            assert "[hidden]" in line


@pytest.mark.usefixtures("restored_loggers")
@pytest.mark.parametrize(
    ("log_format", "stream", "is_json"),
    [
        (LogFormat.AUTO, Terminal(), False),
        (LogFormat.AUTO, io.StringIO(), True),
        (LogFormat.HUMAN, io.StringIO(), False),
        (LogFormat.JSON, Terminal(), True),
    ],
)
def test_auto_is_human_on_a_terminal_and_json_elsewhere(
    log_format: LogFormat, stream: io.StringIO, is_json: bool
) -> None:
    configure_logging(LoggingConfig(format=log_format), stream)
    event_logger("logbrook.x").info("hello", a=1)
    assert stream.getvalue().startswith("{") == is_json
    assert stream.getvalue().endswith("\n")


@pytest.mark.usefixtures("restored_loggers")
@pytest.mark.parametrize(
    ("stream", "variables", "coloured"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(
    stream: io.StringIO, variables: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    configure_logging(LoggingConfig(format=LogFormat.HUMAN), stream)
    logging.getLogger("logbrook").info("hello")
    assert ("\x1b" in stream.getvalue()) == coloured


@pytest.mark.usefixtures("restored_loggers")
def test_the_level_applies_to_our_loggers_and_libraries_log_from_warning_on() -> None:
    stream = io.StringIO()
    configure_logging(LoggingConfig(level=LogLevel.DEBUG), stream)
    for name in ("logbrook.server", "elsewhere"):
        logging.getLogger(name).debug("detail of %s", name)
        logging.getLogger(name).warning("warning of %s", name)
    messages = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert messages == ["detail of logbrook.server", "warning of logbrook.server", "warning of elsewhere"]


@pytest.mark.usefixtures("restored_loggers")
def test_a_second_configuration_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure_logging(LoggingConfig(), first)
    configure_logging(LoggingConfig(level=LogLevel.ERROR), second)
    logging.getLogger("logbrook").warning("not heard")
    logging.getLogger("logbrook").error("heard")
    assert first.getvalue() == ""
    assert len(second.getvalue().splitlines()) == 1


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def logger() -> EventLogger:
    return event_logger("logbrook.test_logs")


def logged(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [tuple(record.msg) for record in caplog.records]


def test_a_repeated_warning_is_logged_once_a_second_with_the_number_suppressed(
    caplog: pytest.LogCaptureFixture, clock: FakeClock, logger: EventLogger
) -> None:
    warnings = RateLimitedWarnings(logger, clock)
    for number in range(3):
        warnings.warn("bad frame", "100% bad frame", number=number)
    clock.advance(999)
    warnings.warn("bad frame", "100% bad frame", number=3)
    clock.advance(1)
    warnings.warn("bad frame", "100% bad frame", number=4)
    clock.advance(1_000)
    warnings.warn("bad frame", "100% bad frame", number=5)
    assert logged(caplog) == [
        ("100% bad frame", {"number": 0}),
        ("100% bad frame", {"number": 4, "suppressed": 3}),
        ("100% bad frame", {"number": 5}),
    ]


def test_each_key_has_its_own_second(caplog: pytest.LogCaptureFixture, clock: FakeClock, logger: EventLogger) -> None:
    warnings = RateLimitedWarnings(logger, clock)
    for key in ("a", "b", "a"):
        warnings.warn(key, f"about {key}")
    assert [message for message, _ in logged(caplog)] == ["about a", "about b"]


def test_the_number_of_keys_is_bounded(caplog: pytest.LogCaptureFixture, clock: FakeClock, logger: EventLogger) -> None:
    warnings = RateLimitedWarnings(logger, clock, keys_max=2)
    for key in ("a", "a", "b", "c", "a"):
        warnings.warn(key, f"about {key}")
    assert logged(caplog) == [("about a", {}), ("about b", {}), ("about c", {}), ("about a", {})]
