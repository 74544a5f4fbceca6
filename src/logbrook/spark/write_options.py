"""The options of a topic sink, parsed into `WriteOptions`: those of Spark's Kafka sink and of Kafka's producer."""

from collections.abc import Mapping
from typing import NamedTuple

from logbrook.client import Client, RetryPolicy
from logbrook.client.producer import IN_FLIGHT_BYTES_MAX
from logbrook.client.security import PLAINTEXT_SECURITY, ClientSecurity
from logbrook.records.batch import Codec
from logbrook.records.builder import BATCH_BYTES_MAX
from logbrook.spark.client_options import accept_client_options
from logbrook.spark.errors import OptionError
from logbrook.spark.options import KAFKA_PREFIX, OptionReader
from logbrook.spark.outages import CONNECT_TIMEOUT_S, OUTAGE_TIMEOUT_S, outage_retry
from logbrook.spark.schemas.encoding_options import ValueEncoding, read_value_encoding

_REQUEST_BYTES_MAX = 1 << 20
# Longer than Kafka's two minutes: a failed task is expensive.
_DELIVERY_TIMEOUT_MS = round(OUTAGE_TIMEOUT_S * 1000)
_REQUEST_TIMEOUT_MS = 30_000
# The default of the broker's transaction.max.timeout.ms. A retried task aborts the open transaction immediately.
_TRANSACTION_TIMEOUT_MS = 15 * 60_000
_EXACTLY_ONCE = "exactly-once"
_DELIVERIES = ("at-least-once", _EXACTLY_ONCE)
_BYTES_MAX = 2**31 - 1
_CODECS = {codec.name.lower(): codec for codec in Codec}
# Levels and defaults of Kafka's producer. The default of lz4 stands for its fast algorithm, as ours does.
_LEVELS = {
    Codec.GZIP: (range(1, 10), -1),
    Codec.LZ4: (range(1, 18), 9),
    Codec.ZSTD: (range(-131_072, 23), 3),
}
_REFUSED = {
    "subscribe": "it is for reading; name the target with 'topic'",
    "subscribepattern": "it is for reading; name the target with 'topic'",
    "assign": "it is for reading; name the target with 'topic'",
    "startingoffsets": "it is for reading",
    "endingoffsets": "it is for reading",
    "failondataloss": "it is for reading",
}


class WriteOptions(NamedTuple):
    """All options of a topic sink. `topic` is None if each row names its own.

    `app_id` is the prefix of transactional ids; None stands for the query's id. `batch_id` identifies a batch write;
    None stands for the micro-batch that it is part of.
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
    batch_id: int | None = None
    in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX
    # Limit of connecting; None for Kafka's default, at most that of a request.
    connect_timeout_s: float | None = None
    # Values with a schema in a registry; None if they are written as they are.
    encoding: ValueEncoding | None = None
    # Compression level; None for the codec's default.
    level: int | None = None
    security: ClientSecurity = PLAINTEXT_SECURITY

    def client(self) -> Client:
        """Create a client. Raises ValueError for servers that are not HOST:PORT."""
        return Client(
            self.bootstrap_servers,
            client_id=self.client_id,
            timeout_s=self.request_timeout_s,
            connect_timeout_s=self.connect_timeout_s or min(CONNECT_TIMEOUT_S, self.request_timeout_s),
            security=self.security,
        )

    @property
    def retry(self) -> RetryPolicy:
        """The policy while the cluster is away."""
        return outage_retry(self.bootstrap_servers, self.delivery_timeout_s)


def write_options(options: Mapping[str, str], *, is_stream: bool = False) -> WriteOptions:
    """Parse the options of a sink. Raises OptionError."""
    for name in options:
        normalized = name.lower().removeprefix(KAFKA_PREFIX)
        if normalized in _REFUSED:
            raise OptionError(name, f"it cannot be set here; {_REFUSED[normalized]}")
    reader = OptionReader(options)
    accept_client_options(reader, is_write=True)
    # Headers are always written, as in Spark's Kafka sink.
    reader.boolean("includeHeaders", True)
    connect_ms = reader.integer("socket.connection.setup.timeout.ms", None, at_least=1)
    request_timeout_ms = _integer(reader, "request.timeout.ms", _REQUEST_TIMEOUT_MS)
    # As in Kafka's producer, the default leaves room for at least one request.
    delivery_timeout_ms = max(_DELIVERY_TIMEOUT_MS, request_timeout_ms)
    request_bytes_max = _integer(reader, "max.request.size", _REQUEST_BYTES_MAX)
    parsed = WriteOptions(
        bootstrap_servers=reader.required("kafka.bootstrap.servers"),
        topic=reader.text("topic"),
        codec=(codec := _read_codec(reader)),
        level=_read_levels(reader).get(codec),
        # A request has at least one batch.
        batch_bytes_max=min(_integer(reader, "batch.size", BATCH_BYTES_MAX), request_bytes_max),
        request_bytes_max=request_bytes_max,
        delivery_timeout_s=_integer(reader, "delivery.timeout.ms", delivery_timeout_ms) / 1000,
        request_timeout_s=request_timeout_ms / 1000,
        client_id=reader.text("client.id") or "logbrook-spark",
        is_exactly_once=reader.choice("delivery", _DELIVERIES, _DELIVERIES[0]) == _EXACTLY_ONCE,
        app_id=reader.text("app.id"),
        transaction_timeout_ms=_integer(reader, "transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS),
        encoding=read_value_encoding(reader, reader.text("topic")),
        batch_id=reader.integer("batch.id", None, at_least=0),
        in_flight_bytes_max=reader.integer("buffer.memory", IN_FLIGHT_BYTES_MAX, at_least=1),
        connect_timeout_s=None if connect_ms is None else connect_ms / 1000,
        security=reader.security(),
    )
    reader.finish()
    if parsed.batch_id is not None and is_stream:
        raise OptionError("batch.id", "it is only for batch writes; a streaming query has its own batch ids")
    for name in ("app.id", "batch.id", "transaction.timeout.ms"):
        if name in reader and not parsed.is_exactly_once:
            raise OptionError(name, f"it is only for delivery={_EXACTLY_ONCE}")
    if parsed.delivery_timeout_s < parsed.request_timeout_s:
        raise OptionError("delivery.timeout.ms", "it is less than request.timeout.ms, the limit of a single attempt")
    try:
        parsed.client()
    except ValueError as error:
        raise OptionError("kafka.bootstrap.servers", str(error)) from None
    return parsed


def _read_codec(reader: OptionReader) -> Codec:
    name = reader.only_one_of("compression", "compression.type") or "compression"
    return _CODECS[reader.choice(name, _CODECS, "none")]


def _read_levels(reader: OptionReader) -> dict[Codec, int]:
    """Return the compression levels by codec, without those that are Kafka's default."""
    levels = {}
    for codec, (allowed, default) in _LEVELS.items():
        name = f"compression.{codec.name.lower()}.level"
        level = reader.integer(name, default)
        if level != default and level not in allowed:
            raise OptionError(name, f"it must be from {allowed[0]} to {allowed[-1]}, not {level}")
        if level != default:
            levels[codec] = level
    return levels


def _integer(reader: OptionReader, name: str, default: int) -> int:
    value = reader.integer(name, default, at_least=1)
    if value > _BYTES_MAX:
        raise OptionError(name, f"it must be at most {_BYTES_MAX}, not {value}")
    return value
