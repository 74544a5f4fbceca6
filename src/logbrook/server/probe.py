"""Counters of the server: plain integers, read by `server.metrics`."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from logbrook.protocol.error_codes import ErrorCode
from logbrook.storage.probe import Histogram


class QuotaKind(StrEnum):
    """Reasons to throttle a client."""

    PRODUCE = "produce"
    FETCH = "fetch"
    REQUEST = "request"
    MUTATION = "mutation"
    CONNECTION = "connection"


@dataclass(slots=True)
class Traffic:
    """Bytes and records produced to and fetched from a topic."""

    bytes_in: int = 0
    messages_in: int = 0
    bytes_out: int = 0
    messages_out: int = 0

    def took(self, size: int, messages: int) -> None:
        self.bytes_in += size
        self.messages_in += messages

    def gave(self, size: int, messages: int) -> None:
        self.bytes_out += size
        self.messages_out += messages


@dataclass(slots=True)
class ServerProbe:
    """Totals since the broker started."""

    connections_accepted: int = 0
    connections_refused: int = 0
    connections_reaped: int = 0
    tls_handshake_failures: int = 0
    authentications: int = 0
    authentication_failures: int = 0
    protocol_errors: int = 0
    handler_failures: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    requests: defaultdict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    latencies: defaultdict[str, Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    errors: defaultdict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    topics: defaultdict[str, Traffic] = field(default_factory=lambda: defaultdict(Traffic))
    # Responses and connections that were throttled, and the throttle times.
    throttled: defaultdict[QuotaKind, int] = field(default_factory=lambda: defaultdict(int))
    throttled_s: defaultdict[QuotaKind, float] = field(default_factory=lambda: defaultdict(float))

    def count_throttled(self, kind: QuotaKind, wait_s: float) -> None:
        self.throttled[kind] += 1
        self.throttled_s[kind] += wait_s

    def count_errors(self, api_name: str, codes: Iterable[int]) -> None:
        """Count the Kafka error codes of a response."""
        for code in codes:
            self.errors[api_name, ErrorCode(code).name] += 1
