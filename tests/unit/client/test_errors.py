"""The classification of errors: retriable or not, and which caches they invalidate."""

import pytest

from logbrook.client import (
    BrokerError,
    ClientError,
    ConnectFailedError,
    ConnectionClosedError,
    DeliveryTimedOutError,
    TimedOutError,
    UnexpectedAnswerError,
)
from logbrook.protocol.error_classes import REFRESH_COORDINATOR, REFRESH_METADATA, RETRY_SOON, UNKNOWN_TOPIC
from logbrook.protocol.error_codes import RETRIABLE, ErrorCode


@pytest.mark.parametrize(
    "error",
    [
        TimedOutError("broker", 1, 1.0),
        ConnectFailedError("broker", 1, "refused"),
        ConnectionClosedError("broker", 1, "reset"),
        UnexpectedAnswerError("broker", 1, "another correlation id"),
    ],
)
def test_network_errors_are_retriable_and_invalidate_leaders_and_coordinators(error: ClientError) -> None:
    assert error.is_retriable
    assert error.needs_metadata_refresh
    assert error.needs_coordinator_refresh


@pytest.mark.parametrize("error", [ClientError("x"), DeliveryTimedOutError("t", 0, 1.0, None)])
def test_other_client_errors_are_final(error: ClientError) -> None:
    assert not error.is_retriable
    assert not error.needs_metadata_refresh
    assert not error.needs_coordinator_refresh


@pytest.mark.parametrize(
    ("code", "is_retriable", "metadata", "coordinator"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True, True, False),
        (ErrorCode.NOT_COORDINATOR, True, False, True),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, True, False, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True, False, False),
        (ErrorCode.REQUEST_TIMED_OUT, True, False, False),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, False, False, False),
        (ErrorCode.OFFSET_OUT_OF_RANGE, False, False, False),
    ],
)
def test_a_broker_error_is_classified_by_its_code(
    code: ErrorCode, is_retriable: bool, metadata: bool, coordinator: bool
) -> None:
    error = BrokerError(code, "fetching from t-0")
    assert error.is_retriable is is_retriable
    assert error.needs_metadata_refresh is metadata
    assert error.needs_coordinator_refresh is coordinator


def test_an_error_that_refreshes_a_cache_is_retriable() -> None:
    assert REFRESH_METADATA | REFRESH_COORDINATOR | RETRY_SOON | UNKNOWN_TOPIC <= RETRIABLE


def test_a_code_that_this_client_does_not_have_is_an_unknown_server_error() -> None:
    error = BrokerError(9999, "fetching from t-0", "no idea")
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert str(error) == "fetching from t-0: error code 9999 (no idea)"
