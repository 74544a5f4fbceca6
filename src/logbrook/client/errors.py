"""Errors of requests to a broker, and what to do about them.

Every ClientError says whether the same request may succeed later (`is_retriable`), and whether the cached leaders or
the cached coordinator may be out of date (`needs_metadata_refresh`, `needs_coordinator_refresh`). For a `BrokerError`
its code decides (`protocol.error_classes`), for other errors their class. A ProtocolError (a malformed response, an API
that the broker lacks, an answer in another protocol) is none of these and is never retriable.
"""

from collections.abc import Sequence

from logbrook.model import LogbrookError
from logbrook.protocol.error_classes import REFRESH_COORDINATOR, REFRESH_METADATA
from logbrook.protocol.error_codes import RETRIABLE, ErrorCode
from logbrook.protocol.errors import ProtocolError

# An answer of NotKafkaError.
TLS = "TLS"


class ClientError(LogbrookError):
    """A request failed."""

    is_retriable = False
    needs_metadata_refresh = False
    needs_coordinator_refresh = False


class NetworkError(ClientError):
    """No usable response from a broker. Unless connecting failed, the request may have been processed."""

    is_retriable = True
    needs_metadata_refresh = True
    needs_coordinator_refresh = True

    def __init__(self, host: str, port: int, message: str) -> None:
        super().__init__(message)
        self.host = host
        self.port = port


class ConnectFailedError(NetworkError):
    """A connection to the address could not be established."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(host, port, f"cannot connect to {host}:{port}: {reason}")


class ConnectionClosedError(NetworkError):
    """The connection was closed before the response arrived."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(host, port, f"the connection to {host}:{port} is closed: {reason}")


class TimedOutError(NetworkError):
    """The response did not arrive in time."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        super().__init__(host, port, f"{host}:{port} took longer than {timeout_s:g} s")
        self.timeout_s = timeout_s


class UnexpectedAnswerError(NetworkError):
    """A response with another correlation id than that of the oldest request; the connection is closed."""


class TlsHandshakeClosedError(ConnectionClosedError):
    """The peer closed the connection during the TLS handshake: it is stopping, or its listener is plain text."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        hint = "the listener may be plain text (security.protocol=PLAINTEXT or SASL_PLAINTEXT)"
        super().__init__(host, port, f"the TLS handshake was cut short ({reason}); {hint}")


class SecurityOptionError(ClientError):
    """A security option is unknown, contradicts another or cannot be used. The message never has a secret value."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"option {option}: {reason}")
        self.option = option
        self.reason = reason


class ConnectionSecurityError(ClientError):
    """TLS or SASL failed. Not retriable: the same credentials and certificates would fail again."""

    def __init__(self, host: str, port: int, message: str) -> None:
        super().__init__(message)
        self.host = host
        self.port = port


class BrokerCertificateError(ConnectionSecurityError):
    """The broker's certificate is not accepted: another CA, expired, or issued for other names."""


class ClientCertificateError(ConnectionSecurityError):
    """The broker requires a client certificate, or refuses the one that it was given."""


class WrongSecurityProtocolError(ConnectionSecurityError):
    """The listener has another security protocol, or no version of TLS in common."""


class MechanismNotOfferedError(ConnectionSecurityError):
    """The broker does not accept the client's SASL mechanism."""

    def __init__(self, host: str, port: int, mechanism: str, offered: Sequence[str]) -> None:
        offer = f"it offers {', '.join(offered)}; set sasl.mechanism" if offered else "it offers none"
        super().__init__(host, port, f"{host}:{port} does not accept {mechanism}: {offer}")
        self.mechanism = mechanism
        self.offered = tuple(offered)


class SaslRefusedError(ConnectionSecurityError):
    """The broker refuses the credentials, or could not prove that it knows them."""


class TokenUnavailableError(ClientError):
    """No OAuth token could be had from its file or its endpoint. Retriable if the endpoint may answer later."""

    def __init__(self, source: str, reason: str, *, is_retriable: bool = False) -> None:
        super().__init__(f"no token from {source}: {reason}")
        self.source = source
        self.is_retriable = is_retriable


class NotKafkaError(ProtocolError):
    """The peer answers in another protocol."""

    def __init__(self, host: str, port: int, answer: str) -> None:
        """`answer` describes it, as in "HTTP"."""
        hint = ", or a listener that requires TLS (security.protocol=SSL or SASL_SSL)" if answer == TLS else ""
        super().__init__(f"{host}:{port} answers with {answer}: this is not a Kafka broker{hint}")
        self.host = host
        self.port = port


class BrokerError(ClientError):
    """The broker answered with an error code. A code newer than this client is treated as UNKNOWN_SERVER_ERROR."""

    def __init__(self, code: int, operation: str, message: str | None = None) -> None:
        """`operation` is what was attempted, as in "creating topic orders"; `message` is the broker's own, if any."""
        is_defined = code in ErrorCode._value2member_map_
        self.code = ErrorCode(code) if is_defined else ErrorCode.UNKNOWN_SERVER_ERROR
        self.operation = operation
        self.message = message
        name = self.code.name if is_defined else f"error code {code}"
        super().__init__(f"{operation}: {name}" + (f" ({message})" if message else ""))
        self.is_retriable = self.code in RETRIABLE
        self.needs_metadata_refresh = self.code in REFRESH_METADATA
        self.needs_coordinator_refresh = self.code in REFRESH_COORDINATOR


class ProducerStateError(BrokerError):
    """The broker's sequence of a producer differs from the producer's. Going on would lose or duplicate records."""


class ProducerFencedError(ProducerStateError):
    """A newer producer has taken over the transactional id; the open transaction is aborted."""

    def __init__(self, transactional_id: str, error: BrokerError) -> None:
        message = f"another producer has taken over transactional id {transactional_id!r}"
        super().__init__(error.code, error.operation, message)
        self.transactional_id = transactional_id


class TransactionTimedOutError(ProducerStateError):
    """The broker aborted a transaction that was open for longer than its timeout."""

    def __init__(self, transactional_id: str, timeout_s: float, error: BrokerError) -> None:
        message = (
            f"the transaction of {transactional_id!r} was open for longer than its timeout of {timeout_s:g} s, "
            "after which brokers abort it"
        )
        super().__init__(error.code, error.operation, message)
        self.transactional_id = transactional_id
        self.timeout_s = timeout_s


class DeliveryTimedOutError(ClientError):
    """A batch was not acknowledged within the delivery timeout. It may have been written."""

    def __init__(self, topic: str, partition: int, timeout_s: float, last_error: Exception | None) -> None:
        reason = f"the last error is: {last_error}" if last_error else "nothing has answered"
        super().__init__(f"producing to {topic}-{partition} did not succeed within {timeout_s:g} s; {reason}")
        self.topic = topic
        self.partition = partition
        self.timeout_s = timeout_s
        self.last_error = last_error


def check_code(code: int, operation: str, message: str | None = None) -> None:
    """Raise BrokerError unless `code` is NONE."""
    if code:
        raise BrokerError(code, operation, message)
