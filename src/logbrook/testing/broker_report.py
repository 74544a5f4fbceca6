"""Brokers in the report of a failed test: the end of their logs, and the last records of their topics.

The pytest plugin adds it for the brokers that run when a test fails, and for those that the failure has stopped: a
`with Broker()` block that an exception leaves. All of it is bounded, and no error of the broker hides that of the test.
"""

import logging
import threading
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import NamedTuple, Protocol

from logbrook.client import Client, ClientSecurity
from logbrook.client.admin import Admin
from logbrook.model.event_log import LogEvent
from logbrook.model.text import printable
from logbrook.server.logs import HumanFormatter
from logbrook.testing.broker_client import TopicRecord, read_records
from logbrook.testing.broker_thread import THREAD_NAME

LINES_MAX = 40
TOPICS_MAX = 10
RECORDS_MAX = 5

_FIELD_CHARACTERS_MAX = 80
_PARTITIONS_MAX = 20
_TIMEOUT_S = 2.0
# For the records of all topics.
_READ_S_MAX = 5.0
_REPORTS_MAX = 4


class BrokerReport(NamedTuple):
    """The text for one broker, at `address`."""

    address: str
    log: str
    topics: str


class ReportedBroker(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def log_tail(self) -> Sequence[str]: ...

    @property
    def unreachable_because(self) -> str | None: ...

    @property
    def client_security(self) -> ClientSecurity: ...


# Brokers that run, and reports of those that an exception has stopped, since the last test.
running: list[ReportedBroker] = []
of_stopped: deque[BrokerReport] = deque(maxlen=_REPORTS_MAX)


class LogTail:
    """The last events of one broker, as lines. Events of other brokers' threads are left out."""

    def __init__(self) -> None:
        self.thread_id: int | None = None
        self._records: deque[logging.LogRecord] = deque(maxlen=LINES_MAX)
        self._formatter = HumanFormatter(coloured=False)

    def add(self, logger: str, level: int, event: LogEvent, error: BaseException | None) -> None:
        """Called on the thread that logs."""
        thread = threading.current_thread()
        is_of_another = thread.name == THREAD_NAME and self.thread_id is not None and thread.ident != self.thread_id
        if level > logging.DEBUG and not is_of_another:
            exc_info = None if error is None else (type(error), error, error.__traceback__)
            self._records.append(logging.LogRecord(logger, level, "", 0, event, (), exc_info))

    @property
    def lines(self) -> list[str]:
        # A copy: the broker may log meanwhile.
        return [line for record in [*self._records] for line in self._formatter.format(record).splitlines()]


def take_reports(first_topic: str | None = None) -> list[BrokerReport]:
    """Return reports of the running brokers, and of those that an exception has stopped since the last call.

    `first_topic` is shown before other topics.
    """
    reports = [*of_stopped]
    of_stopped.clear()
    return reports + [report_on(broker, first_topic) for broker in [*running][-_REPORTS_MAX:]]


def report_on(broker: ReportedBroker, first_topic: str | None = None) -> BrokerReport:
    log = "\n".join(broker.log_tail[-LINES_MAX:]) or "no events"
    return BrokerReport(broker.bootstrap_servers, log, _describe_topics(broker, first_topic))


def _describe_topics(broker: ReportedBroker, first_topic: str | None) -> str:
    if broker.unreachable_because is not None:
        return f"not shown: {broker.unreachable_because}"
    try:
        security = broker.client_security
        with Client(broker.bootstrap_servers, timeout_s=_TIMEOUT_S, security=security) as client:
            return "\n".join(_topic_lines(client, first_topic)) or "no topics"
    except Exception as error:
        return f"not shown: {error}"


def _topic_lines(client: Client, first_topic: str | None) -> list[str]:
    topics = [topic for topic in Admin(client).topics.all() if not topic.is_internal]
    topics.sort(key=lambda topic: (topic.name != first_topic, not topic.offsets, topic.name))
    lines: list[str] = []
    until_s = monotonic() + _READ_S_MAX
    for topic in topics[:TOPICS_MAX]:
        count = len(topic.partitions)
        lines.append(f"{topic.name}: {count} partition{'' if count == 1 else 's'}, {topic.offsets or 0} records")
        if topic.offsets:
            numbers = [partition.partition for partition in topic.partitions][:_PARTITIONS_MAX]
            lines += _record_lines(client, topic.name, numbers, until_s - monotonic())
    if len(topics) > TOPICS_MAX:
        lines.append(f"and {len(topics) - TOPICS_MAX} more topics")
    return lines


def _record_lines(client: Client, topic: str, numbers: Sequence[int], timeout_s: float) -> list[str]:
    try:
        records = read_records(
            client, topic, numbers, committed_only=False, last=RECORDS_MAX, timeout_s=max(0.0, timeout_s)
        )
    except Exception as error:
        return [f"  not shown: {error}"]
    return [f"  {_record_line(record)}" for record in records[-RECORDS_MAX:]]


def _record_line(record: TopicRecord) -> str:
    headers = "".join(f" {printable(name)}={_shown(value)}" for name, value in record.headers[:RECORDS_MAX])
    return f"{record.partition}:{record.offset} key={_shown(record.key)} value={_shown(record.value)}{headers}"


def _shown(field: bytes | None) -> str:
    if field is None:
        return "null"
    text = repr(field[:_FIELD_CHARACTERS_MAX])[1:]
    return text if len(field) <= _FIELD_CHARACTERS_MAX else f"{text}... ({len(field)} bytes)"
