"""What a client of the JSON protocol is told of which error."""

import pytest

from logbrook.core.fetch_sessions import FetchSessionError
from logbrook.core.groups.errors import CoordinatorLoadingError
from logbrook.core.metadata import TopicNotFoundError
from logbrook.core.transactions.errors import TransactionError
from logbrook.model import LogbrookError, TopicPartition
from logbrook.server.json.errors import RETRIABLE, JsonError, error_object, json_error
from logbrook.server.leader_epoch import FencedLeaderEpochError, UnknownLeaderEpochError
from logbrook.server.refusals import RefusedError
from logbrook.storage.errors import CorruptLogError, DiskFullError, PartitionNotFoundError, StorageOfflineError
from tests.unit.server.test_errors import NO_CODE_NEEDED, errors

# This protocol knows no transactions, no sessions and no epochs.
CANNOT_COME = (TransactionError, FetchSessionError, FencedLeaderEpochError, UnknownLeaderEpochError)
KINDS = [kind for kind in errors() if kind not in NO_CODE_NEEDED - {RefusedError} and not issubclass(kind, CANNOT_COME)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_client_can_be_told_of_every_error(kind: type[LogbrookError]) -> None:
    assert json_error(kind.__new__(kind)) is not JsonError.INTERNAL_ERROR


def test_an_error_that_is_not_known_is_our_own_bug() -> None:
    assert json_error(LogbrookError()) is JsonError.INTERNAL_ERROR


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TopicNotFoundError("t"), JsonError.TOPIC_NOT_FOUND),
        (PartitionNotFoundError(TopicPartition("t", 0)), JsonError.PARTITION_NOT_FOUND),
        (DiskFullError("f", 1), JsonError.INSUFFICIENT_SPACE),
        (CorruptLogError(TopicPartition("t", 0), "f", 0, 0, "r"), JsonError.CORRUPTED_DATA),
        (StorageOfflineError("sync", "f", OSError()), JsonError.STORAGE_ERROR),
        (CoordinatorLoadingError(), JsonError.NOT_READY),
    ],
)
def test_errors_have_the_names_that_rustlog_gave_them(error: LogbrookError, code: JsonError) -> None:
    found = error_object(error, "Fetch")
    assert found == {"error": code, "message": str(error), "retriable": code in RETRIABLE, "request": "Fetch"}


def test_a_message_is_not_as_long_as_a_stranger_makes_it() -> None:
    assert len(error_object(TopicNotFoundError("t" * 10_000), None)["message"]) == 1_000
