"""Settings for short timeouts and translation of errors, shared by the parts of the aiokafka adapter."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiokafka.errors import BrokerResponseError, CommitFailedError, KafkaError, ProducerFenced

from logbrook.protocol.error_codes import ErrorCode
from tests.interop.clients.interface import RefusedError

QUICK: dict[str, Any] = {"retry_backoff_ms": 20, "request_timeout_ms": 10_000}


def isolation_level(read_committed: bool) -> str:
    return "read_committed" if read_committed else "read_uncommitted"


@contextmanager
def refusals() -> Iterator[None]:
    """Raises a RefusedError in place of the client's own error, if that has a code."""
    try:
        yield
    except CommitFailedError as error:
        # Its error for every response that says that the member is no longer in the group.
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, str(error)) from error
    except ProducerFenced as error:
        # Its generic error for all fatal responses of the broker.
        raise RefusedError(ErrorCode.PRODUCER_FENCED, str(error)) from error
    except BrokerResponseError as error:
        raise RefusedError(error.errno, f"{type(error).__name__}: {error}") from error
    except KafkaError as error:
        cause = error.__cause__ or (error.args[0] if error.args else None)
        if isinstance(cause, BrokerResponseError):
            raise RefusedError(cause.errno, f"{type(error).__name__}: {cause}") from error
        raise
