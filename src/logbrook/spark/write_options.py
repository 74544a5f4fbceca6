"""The options of a writer: the names of Spark's Kafka sink and of Kafka's producer, as far as they mean something."""

from collections.abc import Mapping
from typing import NamedTuple

from logbrook.client import Client
from logbrook.records.batch import Codec
from logbrook.records.builder import BATCH_BYTES_MAX
from logbrook.spark.errors import OptionError
from logbrook.spark.options import KAFKA_PREFIX, OptionReader

_REQUEST_BYTES_MAX = 1 << 20
_DELIVERY_TIMEOUT_MS = 120_000
_REQUEST_TIMEOUT_MS = 30_000
# The most that brokers allow unless they are told otherwise. A transaction of a task that is run again ends at once.
_TRANSACTION_TIMEOUT_MS = 15 * 60_000
_EXACTLY_ONCE = "exactly-once"
_DELIVERIES = ("at-least-once", _EXACTLY_ONCE)
_BYTES_MAX = 2**31 - 1
_CODECS = {codec.name.lower(): codec for codec in Codec}
_REFUSED = {
    "key.serializer": "keys are strings or bytes; make them so in the query",
    "value.serializer": "values are strings or bytes; make them so in the query",
    "interceptor.classes": "there are none",
    "partitioner.class": "give each row its number in the column 'partition' instead",
    "transactional.id": "with delivery=exactly-once it is made of app.id and the number of the task",
    "linger.ms": "a task sends as fast as it gets rows, there is nothing to wait for",
    "retries": "say with delivery.timeout.ms for how long to try again",
    "max.in.flight.requests.per.connection": "it is always 5, the most that keeps the order",
    "subscribe": "it is for reading; say with 'topic' where to write",
    "subscribepattern": "it is for reading; say with 'topic' where to write",
    "assign": "it is for reading; say with 'topic' where to write",
    "startingoffsets": "it is for reading",
    "endingoffsets": "it is for reading",
    "failondataloss": "it is for reading",
}
_ENCRYPTED = ("sasl.", "ssl.")


class WriteOptions(NamedTuple):
    """Everything that a writer is told. `topic` is for all rows, None when each has its own.

    `app_id` names the writer in transactions; None stands for the id of its query.
    """

    bootstrap_servers: str
    topic: str | None = None
    codec: Codec = Codec.NONE
    batch_bytes_max: int = BATCH_BYTES_MAX
    request_bytes_max: int = _REQUEST_BYTES_MAX
    delivery_timeout_s: float = _DELIVERY_TIMEOUT_MS / 1000
    request_timeout_s: float = _REQUEST_TIMEOUT_MS / 1000
    client_id: str = "logbrook-spark"
    is_exactly_once: bool = False
    app_id: str | None = None
    transaction_timeout_ms: int = _TRANSACTION_TIMEOUT_MS

    def client(self) -> Client:
        """A new one. Raises ValueError for servers that are not HOST:PORT."""
        return Client(self.bootstrap_servers, client_id=self.client_id, timeout_s=self.request_timeout_s)


def write_options(options: Mapping[str, str], *, is_stream: bool = False) -> WriteOptions:
    """Raises OptionError."""
    for name in options:
        short = name.lower().removeprefix(KAFKA_PREFIX)
        if short in _REFUSED:
            raise OptionError(name, f"it cannot be set here; {_REFUSED[short]}")
        if short.startswith(_ENCRYPTED):
            raise OptionError(name, "it cannot be set here; this client speaks neither TLS nor SASL")
    reader = OptionReader(options)
    _accept_what_holds_anyway(reader)
    request_bytes_max = _integer(reader, "max.request.size", _REQUEST_BYTES_MAX)
    found = WriteOptions(
        bootstrap_servers=reader.required("kafka.bootstrap.servers"),
        topic=reader.text("topic"),
        codec=_read_codec(reader),
        # A request has at least one batch.
        batch_bytes_max=min(_integer(reader, "batch.size", BATCH_BYTES_MAX), request_bytes_max),
        request_bytes_max=request_bytes_max,
        delivery_timeout_s=_integer(reader, "delivery.timeout.ms", _DELIVERY_TIMEOUT_MS) / 1000,
        request_timeout_s=_integer(reader, "request.timeout.ms", _REQUEST_TIMEOUT_MS) / 1000,
        client_id=reader.text("client.id") or "logbrook-spark",
        is_exactly_once=reader.choice("delivery", _DELIVERIES, _DELIVERIES[0]) == _EXACTLY_ONCE,
        app_id=reader.text("app.id"),
        transaction_timeout_ms=_integer(reader, "transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS),
    )
    reader.finish()
    if found.is_exactly_once and not is_stream:
        reason = "exactly-once is for streaming queries, whose batches have numbers by which a repetition is known"
        raise OptionError("delivery", reason)
    for name in ("app.id", "transaction.timeout.ms"):
        if name in reader and not found.is_exactly_once:
            raise OptionError(name, f"it means something only with delivery={_EXACTLY_ONCE}")
    if found.delivery_timeout_s < found.request_timeout_s:
        raise OptionError("delivery.timeout.ms", "it is less than request.timeout.ms, the time of a single try")
    try:
        found.client()
    except ValueError as error:
        raise OptionError("kafka.bootstrap.servers", str(error)) from None
    return found


def _accept_what_holds_anyway(reader: OptionReader) -> None:
    reader.boolean("includeHeaders", True)
    reader.choice("acks", ("all", "-1"), "all")
    reader.choice("enable.idempotence", ("true",), "true")
    reader.choice("security.protocol", ("PLAINTEXT",), "PLAINTEXT")


def _read_codec(reader: OptionReader) -> Codec:
    name = reader.only_one_of("compression", "compression.type") or "compression"
    return _CODECS[reader.choice(name, _CODECS, "none")]


def _integer(reader: OptionReader, name: str, default: int) -> int:
    value = reader.integer(name, default, at_least=1)
    assert value is not None
    if value > _BYTES_MAX:
        raise OptionError(name, f"it must be at most {_BYTES_MAX}, not {value}")
    return value
