"""Mapping of errors to the errors of the JSON protocol."""

import pytest

from logbrook.core.cluster.partition import InvalidReassignmentError
from logbrook.core.coordinator import CoordinatorLoadingError
from logbrook.core.fetch_sessions import FetchSessionError
from logbrook.core.metadata import TopicNotFoundError
from logbrook.core.replication.leader import NotAReplicaError, StaleReplicaEpochError
from logbrook.core.transactions.errors import TransactionError
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.server.errors import RequestRefusedError
from logbrook.server.json.errors import RETRIABLE, JsonError, error_object, json_error
from logbrook.server.leader_epoch import FencedLeaderEpochError, UnknownLeaderEpochError
from logbrook.storage.errors import CorruptLogError, DiskFullError, PartitionNotFoundError, StorageOfflineError
from tests.unit.server.test_errors import NO_CODE_NEEDED, errors

# This protocol has no transactions, sessions, epochs, replicas and reassignments.
CANNOT_COME = (
    TransactionError,
    FetchSessionError,
    FencedLeaderEpochError,
    UnknownLeaderEpochError,
    InvalidReassignmentError,
    NotAReplicaError,
    StaleReplicaEpochError,
)
KINDS = [
    kind
    for kind in errors()
    if kind not in NO_CODE_NEEDED - {RequestRefusedError} and not issubclass(kind, CANNOT_COME)
]


def test_every_error_is_mapped_to_a_code() -> None:
    for kind in KINDS:
        assert json_error(kind.__new__(kind)) is not JsonError.INTERNAL_ERROR, kind


def test_an_unmapped_error_is_a_server_error() -> None:
    assert json_error(LogbrookError()) is JsonError.INTERNAL_ERROR


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TopicNotFoundError("t"), JsonError.TOPIC_NOT_FOUND),
        (PartitionNotFoundError(TopicPartition("t", 0)), JsonError.PARTITION_NOT_FOUND),
        (DiskFullError("f", 1), JsonError.INSUFFICIENT_SPACE),
        (CorruptLogError(TopicPartition("t", 0), "f", 0, Offset(0), "r"), JsonError.CORRUPTED_DATA),
        (StorageOfflineError("sync", "f", OSError()), JsonError.STORAGE_ERROR),
        (CoordinatorLoadingError(), JsonError.NOT_READY),
    ],
)
def test_errors_have_the_names_that_rustlog_gave_them(error: LogbrookError, code: JsonError) -> None:
    answer = error_object(error, "Fetch")
    assert answer == {"error": code, "message": str(error), "retriable": code in RETRIABLE, "request": "Fetch"}


def test_an_error_message_has_at_most_1000_characters() -> None:
    assert len(error_object(TopicNotFoundError("t" * 10_000), None)["message"]) == 1_000
