"""What can go wrong between a client and a broker."""

from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import RETRIABLE, ErrorCode


class ClientError(LogbrookError):
    """The client did not get what it asked for."""


class ConnectFailedError(ClientError):
    """Nobody answers there."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"cannot connect to {host}:{port}: {reason}")
        self.host = host
        self.port = port


class ConnectionClosedError(ClientError):
    """The broker hung up. Whether it did what it was asked is not known."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"the connection to {host}:{port} is closed: {reason}")
        self.host = host
        self.port = port


class TimedOutError(ClientError):
    """The broker took too long. Whether it did what it was asked is not known."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        super().__init__(f"{host}:{port} took longer than {timeout_s:g} s")
        self.host = host
        self.port = port
        self.timeout_s = timeout_s


class UnexpectedAnswerError(ClientError):
    """An answer to something that was not asked: the two sides have lost each other, and the connection is closed."""


class BrokerError(ClientError):
    """The broker says no. A code that is newer than this client is taken for UNKNOWN_SERVER_ERROR."""

    def __init__(self, code: int, what: str, message: str | None = None) -> None:
        known = code in ErrorCode._value2member_map_
        self.code = ErrorCode(code) if known else ErrorCode.UNKNOWN_SERVER_ERROR
        self.what = what
        name = self.code.name if known else f"error code {code}"
        super().__init__(f"{what}: {name}" + (f" ({message})" if message else ""))

    @property
    def is_retriable(self) -> bool:
        return self.code in RETRIABLE
