"""Which error code tells a client of which error."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

from logbrook.core.groups.errors import (
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    CorruptGroupRecordError,
    FencedInstanceIdError,
    InvalidGroupIdError,
    OffsetMetadataTooLargeError,
)
from logbrook.core.metadata import TopicNotFoundError
from logbrook.core.transactions.errors import CorruptTransactionRecordError
from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import RETRIABLE, ErrorCode
from logbrook.server.broker import NotAdvertisedError
from logbrook.server.console_process import ConsoleRefusedError
from logbrook.server.errors import error_code
from logbrook.server.refusals import RefusedError
from logbrook.storage.errors import (
    BatchTooLargeError,
    DiskFullError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionNotFoundError,
    ProducerFencedError,
    StorageOfflineError,
)

PLACES = (
    "logbrook.config.kafka_settings",
    "logbrook.core",
    "logbrook.model",
    "logbrook.records",
    "logbrook.server",
    "logbrook.storage",
)
# Columns are for readers of whole segments, and pull in libraries that a broker does without.
ELSEWHERE = ("logbrook.records.columns",)

NO_CODE_NEEDED = {
    # Has its code with it, and `refuse` is who tells of it.
    RefusedError,
    # Met while the groups are loaded: it is logged, and they stay "loading" for every client.
    CorruptGroupRecordError,
    # The same for transactions.
    CorruptTransactionRecordError,
    # Keep the broker from starting.
    NotAdvertisedError,
    ConsoleRefusedError,
}


def modules_of(place: str) -> Iterator[str]:
    yield place
    for found in pkgutil.walk_packages(getattr(importlib.import_module(place), "__path__", ()), f"{place}."):
        if not found.name.startswith(ELSEWHERE):
            yield found.name


def errors() -> list[type[LogbrookError]]:
    """Every error that is raised as what it is, which a class with kinds of its own is not."""
    found: set[type[LogbrookError]] = set()
    for name in (name for place in PLACES for name in modules_of(place)):
        for _, one in inspect.getmembers(importlib.import_module(name), inspect.isclass):
            if issubclass(one, LogbrookError) and one.__module__ == name and not one.__subclasses__():
                found.add(one)
    return sorted(found, key=lambda one: one.__qualname__)


def code_of(kind: type[LogbrookError]) -> ErrorCode:
    return error_code(kind.__new__(kind))


@pytest.mark.parametrize("kind", [one for one in errors() if one not in NO_CODE_NEEDED], ids=lambda kind: kind.__name__)
def test_a_client_can_be_told_of_every_error(kind: type[LogbrookError]) -> None:
    assert code_of(kind) not in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE)


def test_errors_are_found_in_every_place() -> None:
    modules = {one.__module__ for one in errors()}
    assert all(any(module.startswith(place) for module in modules) for place in PLACES)
    assert set(errors()) >= NO_CODE_NEEDED


def test_an_error_that_is_not_known_is_our_own_bug() -> None:
    assert error_code(LogbrookError()) is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    "kind",
    [
        CoordinatorLoadingError,
        CoordinatorNotAvailableError,
        DiskFullError,
        StorageOfflineError,
        PartitionNotFoundError,
        TopicNotFoundError,
    ],
)
def test_what_may_pass_is_tried_again(kind: type[LogbrookError]) -> None:
    assert code_of(kind) in RETRIABLE


@pytest.mark.parametrize(
    "kind",
    [
        BatchTooLargeError,
        FencedInstanceIdError,
        InvalidGroupIdError,
        OffsetMetadataTooLargeError,
        OffsetOutOfRangeError,
        OutOfOrderSequenceError,
        ProducerFencedError,
    ],
)
def test_what_will_not_pass_is_not_tried_again(kind: type[LogbrookError]) -> None:
    assert code_of(kind) not in RETRIABLE
