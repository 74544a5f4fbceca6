"""What a client is told of something that was refused: a code, and a sentence where the answer has room for one.

Most refusals are errors of a subsystem, and `errors` has their codes. A handler that refuses by a rule of the protocol
itself raises `RefusedError` with the code that Kafka gives for it.
"""

from typing import NamedTuple

from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.schema import ApiMessage
from logbrook.server.errors import error_code
from logbrook.server.services import Services

# Old versions have no room for more than 32767 bytes, and what is quoted in a message was chosen by a stranger.
MESSAGE_LENGTH_MAX = 1_000


class RefusedError(LogbrookError):
    """Refused by a rule of the protocol, with the code for it."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Refusal(NamedTuple):
    code: ErrorCode
    message: str


def refuse(services: Services, request: ApiMessage, error: LogbrookError) -> Refusal:
    """How to tell of `error`, which is counted as one of the request's API."""
    code = error.code if isinstance(error, RefusedError) else error_code(error)
    services.probe.errors[request.API_NAME, code.name] += 1
    return Refusal(code, str(error)[:MESSAGE_LENGTH_MAX])
