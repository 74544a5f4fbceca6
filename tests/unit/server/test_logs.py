"""The broker's own log: what a line looks like, and what strangers cannot do to it."""

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
from logbrook.server.logs import HumanFormatter, JsonFormatter, RepeatedWarnings, configure_logging, fields
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


def record(message: str, *arguments: Any, level: int = logging.INFO, exc_info: Any = None, **facts: Any) -> Any:
    made = logging.LogRecord("logbrook.server.x", level, __file__, 1, message, arguments, exc_info)
    made.created = CREATED
    made.__dict__.update(fields(**facts))
    return made


def caught(error: Exception) -> Any:
    try:
        raise error
    except Exception:
        return sys.exc_info()


def test_a_line_of_json_has_time_level_logger_message_and_fields() -> None:
    line = JsonFormatter().format(record("topic %s created", "orders", topic="orders", partitions=3, ratio=0.5))
    assert json.loads(line) == {
        "ts": "2023-11-14T22:13:20.123Z",
        "level": "info",
        "logger": "logbrook.server.x",
        "message": "topic orders created",
        "fields": {"topic": "orders", "partitions": 3, "ratio": 0.5},
    }


def test_a_line_of_json_without_fields_or_exception_has_neither() -> None:
    assert set(json.loads(JsonFormatter().format(record("started")))) == {"ts", "level", "logger", "message"}


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
def test_whatever_strangers_send_a_record_is_one_line_that_prints(argument: str, value: str) -> None:
    made = record("from %s", argument, value=value, nested={value: [value]})
    assert HUMAN.format(made).isprintable()
    line = JsonFormatter().format(made)
    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line)["fields"]["value"] == value


def test_what_is_too_long_is_cut_and_what_is_too_deep_is_text() -> None:
    deep: Any = "end"
    for _ in range(10):
        deep = [deep]
    made = record("m" * 2_000, many=list(range(100)), deep=deep)
    line = json.loads(JsonFormatter().format(made))
    assert len(line["message"]) == 1_003
    assert line["fields"]["many"] == list(range(50))
    assert line["fields"]["deep"] == [[[str([[[[[[["end"]]]]]]])]]]


def test_the_order_of_a_set_does_not_depend_on_chance() -> None:
    assert HUMAN.format(record("m", names=frozenset("cab"))).endswith('names=["a", "b", "c"]')


def test_not_a_number_does_not_spoil_json() -> None:
    line = JsonFormatter().format(record("m", value=float("inf")))
    assert json.loads(line, parse_constant=pytest.fail)["fields"] == {"value": "inf"}


@pytest.mark.parametrize("name", ["password", "sasl_password", "client_secret", "authToken", "api_key", "credentials"])
def test_a_fact_that_promises_a_secret_is_not_written(name: str) -> None:
    for facts in ({name: "hunter2"}, {"config": {name: "hunter2"}}):
        made = record("m", **facts)
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
    logging.getLogger("logbrook.x").info("hello", extra=fields(a=1))
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
def test_our_loggers_follow_the_level_and_others_are_heard_from_warning_on() -> None:
    stream = io.StringIO()
    configure_logging(LoggingConfig(level=LogLevel.DEBUG), stream)
    for name in ("logbrook.server", "elsewhere"):
        logging.getLogger(name).debug("detail of %s", name)
        logging.getLogger(name).warning("warning of %s", name)
    messages = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    assert messages == ["detail of logbrook.server", "warning of logbrook.server", "warning of elsewhere"]


@pytest.mark.usefixtures("restored_loggers")
def test_configuring_again_takes_the_place_of_the_first() -> None:
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
def logger() -> logging.Logger:
    return logging.getLogger("logbrook.test_logs")


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    return [(one.getMessage(), one.__dict__["fields"]) for one in caplog.records]


def test_a_warning_that_repeats_is_told_once_a_second_with_how_many_were_held_back(
    caplog: pytest.LogCaptureFixture, clock: FakeClock, logger: logging.Logger
) -> None:
    warnings = RepeatedWarnings(logger, clock)
    for number in range(3):
        warnings.warn("bad frame", "100% bad frame", number=number)
    clock.advance(999)
    warnings.warn("bad frame", "100% bad frame", number=3)
    clock.advance(1)
    warnings.warn("bad frame", "100% bad frame", number=4)
    clock.advance(1_000)
    warnings.warn("bad frame", "100% bad frame", number=5)
    assert told(caplog) == [
        ("100% bad frame", {"number": 0}),
        ("100% bad frame", {"number": 4, "suppressed": 3}),
        ("100% bad frame", {"number": 5}),
    ]


def test_each_key_has_its_own_second(
    caplog: pytest.LogCaptureFixture, clock: FakeClock, logger: logging.Logger
) -> None:
    warnings = RepeatedWarnings(logger, clock)
    for key in ("a", "b", "a"):
        warnings.warn(key, f"about {key}")
    assert [message for message, _ in told(caplog)] == ["about a", "about b"]


def test_strangers_who_bring_new_keys_do_not_fill_the_memory(
    caplog: pytest.LogCaptureFixture, clock: FakeClock, logger: logging.Logger
) -> None:
    warnings = RepeatedWarnings(logger, clock, keys_max=2)
    for key in ("a", "a", "b", "c", "a"):
        warnings.warn(key, f"about {key}")
    assert told(caplog) == [("about a", {}), ("about b", {}), ("about c", {}), ("about a", {})]
