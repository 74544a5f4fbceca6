"""The mapping from errors to Kafka's error codes."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

from logbrook.core.cluster.lifecycle import NodeIdInUseError
from logbrook.core.coordinator import (
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    CorruptCoordinatorRecordError,
)
from logbrook.core.groups.errors import FencedInstanceIdError, InvalidGroupIdError, OffsetMetadataTooLargeError
from logbrook.core.metadata import TopicNotFoundError
from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import RETRIABLE, ErrorCode
from logbrook.server.advertised import NotAdvertisedError, UnknownListenerError
from logbrook.server.cluster.adoption import AdoptionError
from logbrook.server.cluster.etcd_link import InvalidClusterError
from logbrook.server.cluster.identity_file import AdoptionPendingError, ClusterDirectoryError, SingleNodeDirectoryError
from logbrook.server.console_process import ConsoleRefusedError
from logbrook.server.errors import error_code
from logbrook.server.security.authorizer import AuthorizationFailedError
from logbrook.storage.errors import (
    BatchTooLargeError,
    DiskFullError,
    InvalidProducerEpochError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionNotFoundError,
    StorageOfflineError,
)

PLACES = (
    "logbrook.config.kafka_settings",
    "logbrook.core",
    "logbrook.model",
    "logbrook.ports",
    "logbrook.records",
    "logbrook.server",
    "logbrook.storage",
)
# Columns are read by other processes, and import libraries that a broker does not load.
ELSEWHERE = ("logbrook.records.columns",)

NO_CODE_NEEDED = {
    # It has the code of the type of its resource.
    AuthorizationFailedError,
    # Raised while groups or transactions are loaded: it is logged, and clients see them as loading.
    CorruptCoordinatorRecordError,
    # Prevent the start of the broker, or its adoption.
    AdoptionError,
    AdoptionPendingError,
    ClusterDirectoryError,
    InvalidClusterError,
    NodeIdInUseError,
    SingleNodeDirectoryError,
    NotAdvertisedError,
    UnknownListenerError,
    ConsoleRefusedError,
}


def modules_of(place: str) -> Iterator[str]:
    yield place
    for module in pkgutil.walk_packages(getattr(importlib.import_module(place), "__path__", ()), f"{place}."):
        if not module.name.startswith(ELSEWHERE):
            yield module.name


def errors() -> list[type[LogbrookError]]:
    """Return every error class that is raised directly, without base classes of other errors."""
    leaves: set[type[LogbrookError]] = set()
    for name in (name for place in PLACES for name in modules_of(place)):
        for _, error in inspect.getmembers(importlib.import_module(name), inspect.isclass):
            if issubclass(error, LogbrookError) and error.__module__ == name and not error.__subclasses__():
                leaves.add(error)
    return sorted(leaves, key=lambda error: error.__qualname__)


def code_of(kind: type[LogbrookError]) -> ErrorCode:
    return error_code(kind.__new__(kind))


def test_every_error_is_mapped_to_a_code() -> None:
    for kind in (kind for kind in errors() if kind not in NO_CODE_NEEDED):
        assert code_of(kind) not in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE), kind


def test_errors_are_found_in_every_place() -> None:
    modules = {error.__module__ for error in errors()}
    assert all(any(module.startswith(place) for module in modules) for place in PLACES)
    assert set(errors()) >= NO_CODE_NEEDED


def test_an_unmapped_error_is_a_server_error() -> None:
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
def test_transient_errors_have_retriable_codes(kind: type[LogbrookError]) -> None:
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
        InvalidProducerEpochError,
    ],
)
def test_permanent_errors_have_no_retriable_code(kind: type[LogbrookError]) -> None:
    assert code_of(kind) not in RETRIABLE
