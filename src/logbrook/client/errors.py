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


class ProducerStateError(BrokerError):
    """The broker and a producer disagree about what was written before; to go on would lose records or double them."""


class ProducerFencedError(ProducerStateError):
    """Another producer has the transactional id now, and what this one had open is aborted."""

    def __init__(self, transactional_id: str, error: BrokerError) -> None:
        message = f"another producer has taken over transactional id {transactional_id!r}"
        super().__init__(error.code, error.what, message)
        self.transactional_id = transactional_id


class TransactionTimedOutError(ProducerStateError):
    """A transaction was open for so long that the broker has aborted it."""

    def __init__(self, transactional_id: str, timeout_s: float, error: BrokerError) -> None:
        message = (
            f"the transaction of {transactional_id!r} was open for longer than its timeout of {timeout_s:g} s, "
            "after which brokers abort it"
        )
        super().__init__(error.code, error.what, message)
        self.transactional_id = transactional_id
        self.timeout_s = timeout_s


class DeliveryTimedOutError(ClientError):
    """A batch was tried again and again until its time was up. Whether it was written is not known."""

    def __init__(self, topic: str, partition: int, timeout_s: float, last_error: Exception | None) -> None:
        reason = f"the last error is: {last_error}" if last_error else "nothing has answered"
        super().__init__(f"producing to {topic}-{partition} did not succeed within {timeout_s:g} s; {reason}")
        self.topic = topic
        self.partition = partition
        self.timeout_s = timeout_s
        self.last_error = last_error
