"""Module import, settings for short timeouts and translation of errors, shared by the kafka-python adapter's parts."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from logbrook.protocol.error_codes import ErrorCode
from tests.interop.clients.interface import RefusedError

with warnings.catch_warnings():
    # Its way of reading its schemas is deprecated in Python.
    warnings.filterwarnings("ignore", "(open|read)_text is deprecated", DeprecationWarning)
    import kafka
    import kafka.admin
    import kafka.codec
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import BrokerResponseError, CommitFailedError, KafkaError, KafkaTimeoutError

_CODE = re.compile(r"\[Error (\d+)\]")

QUICK: dict[str, Any] = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 50, "retry_backoff_ms": 20}

assignors = {assignor.name: assignor for assignor in (CooperativeStickyAssignor, RangePartitionAssignor)}


def code_in(text: str | None) -> int | None:
    """Return the error code that some of its messages end with."""
    match = _CODE.search(text or "")
    return None if match is None else int(match[1])


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
    except KafkaTimeoutError as error:
        raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
    except BrokerResponseError as error:
        raise RefusedError(error.errno, f"{type(error).__name__}: {error}") from error
    except KafkaError as error:
        cause = error.__cause__ or (error.args[0] if error.args else None)
        if isinstance(cause, BrokerResponseError):
            raise RefusedError(cause.errno, f"{type(error).__name__}: {cause}") from error
        if (code := code_in(str(error))) is not None:
            raise RefusedError(code, str(error)) from error
        raise


__all__ = ["QUICK", "assignors", "code_in", "isolation_level", "kafka", "refusals"]
