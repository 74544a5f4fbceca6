"""The options of a read, parsed into `ReadOptions`: those of Spark's Kafka source, and additional ones.

Starting and ending offsets are given as `earliest` or `latest`, as JSON with offsets or timestamps by partition, or as
one timestamp. As in Spark's Kafka source, one timestamp for all partitions takes precedence over timestamps by
partition, and those over offsets. In addition a timestamp may be relative to now, such as "-10 minutes", also in place
of offsets.
"""

import re
import time
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from pyspark.sql.types import StructType

from logbrook.client import EARLIEST, LATEST, RetryPolicy
from logbrook.client.security import PLAINTEXT_SECURITY, ClientSecurity
from logbrook.model import TopicPartition
from logbrook.spark.client_options import accept_client_options
from logbrook.spark.errors import OptionError
from logbrook.spark.options import OptionReader
from logbrook.spark.outages import OUTAGE_TIMEOUT_S, brief_retry, outage_retry, start_retry
from logbrook.spark.schema import COLUMNS, DECODING_COLUMNS
from logbrook.spark.schemas.options import REGISTRY_URL, RegisteredFormat, read_registered_format
from logbrook.spark.schemas.reader_schema import ReaderSchema
from logbrook.spark.topic_patterns import topic_pattern

_SUBSCRIPTIONS = ("assign", "subscribe", "subscribePattern")


class Subscription(NamedTuple):
    """The topics or partitions a query reads. Exactly one of the fields is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None

    @property
    def names(self) -> tuple[str, ...] | None:
        """The topics that must exist; None for a pattern, which may match any number of topics."""
        if self.pattern is not None:
            return None
        return self.topics if self.assigned is None else tuple(self.assigned)

    def matches(self, topic: str) -> bool:
        return self.pattern is not None and topic_pattern(self.pattern).fullmatch(topic) is not None

    def partitions_of(self, topic: str, partitions: Iterable[int]) -> list[int]:
        """Return the partitions of `topic` to read, out of those that exist."""
        if self.assigned is None:
            return sorted(partitions)
        return sorted(self.assigned[topic])


def read_subscription(options: OptionReader) -> Subscription:
    """Raises OptionError unless exactly one of the three options is given."""
    given = options.only_one_of(*_SUBSCRIPTIONS)
    if given is None:
        raise OptionError("subscribe", f"one of {', '.join(_SUBSCRIPTIONS)} is required, and none is given")
    if given == "subscribe":
        topics = tuple(name.strip() for name in options.required("subscribe").split(",") if name.strip())
        if not topics:
            raise OptionError("subscribe", "it names no topic")
        return Subscription(topics=tuple(dict.fromkeys(topics)))
    if given == "subscribePattern":
        pattern = options.required("subscribePattern")
        try:
            topic_pattern(pattern)
        except ValueError as error:
            raise OptionError("subscribePattern", f"{pattern!r} is not a pattern of topics: {error}") from None
        return Subscription(pattern=pattern)
    return Subscription(assigned=_read_assigned(options))


def _read_assigned(options: OptionReader) -> dict[str, tuple[int, ...]]:
    assigned: dict[str, tuple[int, ...]] = {}
    for topic, partitions in (options.json_object("assign") or {}).items():
        is_list = isinstance(partitions, list) and bool(partitions)
        if not is_list or not all(type(partition) is int and partition >= 0 for partition in partitions):
            raise OptionError("assign", f'{topic!r} needs a list of partitions, as in {{"{topic}": [0, 1]}}')
        assigned[topic] = tuple(sorted(set(partitions)))
    if not assigned:
        raise OptionError("assign", "it names no partition")
    return assigned


_RELATIVE_TIME = re.compile(r"-\s*(\d+)\s*([a-z]+)", re.IGNORECASE)
_UNITS_MS = {"ms": 1, "millisecond": 1, "s": 1000, "sec": 1000, "second": 1000, "m": 60_000, "min": 60_000}
_UNITS_MS |= {"minute": 60_000, "h": 3_600_000, "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000}
_KEYWORDS = {"earliest": EARLIEST, "latest": LATEST}


class RangeBound(StrEnum):
    """The start or the end of a range; the value is the prefix of its options."""

    STARTING = "starting"
    ENDING = "ending"


class OffsetSpec(NamedTuple):
    """The start or end of a range, as given by `option`. Exactly one of the other fields is set.

    Offsets may be EARLIEST or LATEST, and so may `timestamp_ms`, which applies to all partitions.
    """

    option: str
    timestamp_ms: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    timestamps_ms: Mapping[TopicPartition, int] | None = None

    @property
    def by_partition(self) -> Mapping[TopicPartition, int] | None:
        """The offsets or timestamps of individual partitions, or None."""
        return self.offsets if self.offsets is not None else self.timestamps_ms


def read_offset_spec(options: OptionReader, bound: RangeBound, now_ms: int, *, is_batch: bool) -> OffsetSpec:
    """Read the start or the end of a range. The default is all existing records, for a stream all future ones.

    Raises OptionError.
    """
    by_time, by_times, by_offsets = f"{bound}Timestamp", f"{bound}OffsetsByTimestamp", f"{bound}Offsets"
    # All three are parsed, so that an invalid one is reported even if another takes precedence.
    time_text, times, offsets_text = options.text(by_time), options.json_object(by_times), options.text(by_offsets)
    offsets = _read_offsets(by_offsets, offsets_text, bound, now_ms, is_batch=is_batch)
    if time_text is not None:
        return OffsetSpec(by_time, timestamp_ms=_read_time(by_time, time_text, now_ms))
    if times is not None:
        return OffsetSpec(by_times, timestamps_ms=_read_times(by_times, times))
    if offsets is not None:
        return offsets
    is_start_of_batch = is_batch and bound is RangeBound.STARTING
    return OffsetSpec(by_offsets, timestamp_ms=EARLIEST if is_start_of_batch else LATEST)


def check_order(starting: OffsetSpec, ending: OffsetSpec) -> None:
    """Raise OptionError if a range starts after its end, as far as the options tell: it would read nothing."""
    start, end = starting.timestamp_ms, ending.timestamp_ms
    if start is not None and end is not None and start > end >= 0:
        raise OptionError(starting.option, f"{start} is after {ending.option}, {end}; it would read nothing")
    if (starting.offsets is None) != (ending.offsets is None):
        return
    ends = ending.by_partition or {}
    for partition, first in (starting.by_partition or {}).items():
        last = ends.get(partition, LATEST)
        if first > last >= 0:
            reason = f"{first} for {partition} is after {ending.option}, {last}; it would read nothing"
            raise OptionError(starting.option, reason)


def read_duration_ms(option: str, text: str) -> int:
    """Parse a duration such as 15m, 10 minutes or 500ms. Raises OptionError."""
    return _milliseconds(option, text, _RELATIVE_TIME.fullmatch(f"-{text.strip()}"))


def _read_offsets(name: str, text: str | None, bound: RangeBound, now_ms: int, *, is_batch: bool) -> OffsetSpec | None:
    if text is None:
        return None
    keyword = _KEYWORDS.get(text.lower())
    opposite_end = {RangeBound.STARTING: LATEST, RangeBound.ENDING: EARLIEST}[bound]
    forbidden = opposite_end if is_batch else None
    if keyword is not None:
        if keyword == forbidden:
            raise OptionError(name, f"a batch query cannot have {text.lower()!r} here: it would read nothing")
        return OffsetSpec(name, timestamp_ms=keyword)
    if match := _RELATIVE_TIME.fullmatch(text):
        return OffsetSpec(name, timestamp_ms=_before(now_ms, _milliseconds(name, text, match)))
    if not text.startswith("{"):
        raise OptionError(name, f"it must be earliest, latest, JSON or a time from now such as '-1h', not {text!r}")
    offsets = _by_partition(name, OptionReader({name: text}).json_object(name) or {})
    for partition, offset in offsets.items():
        if offset < EARLIEST or offset == forbidden:
            raise OptionError(name, f"{offset} is not allowed for {partition}")
    return OffsetSpec(name, offsets=offsets)


def _read_time(option: str, text: str, now_ms: int) -> int:
    if text.isdecimal():
        return int(text)
    return _before(now_ms, _milliseconds(option, text, _RELATIVE_TIME.fullmatch(text)))


def _read_times(option: str, document: Mapping[str, Any]) -> dict[TopicPartition, int]:
    times = _by_partition(option, document)
    for partition, time_ms in times.items():
        # In ListOffsets negative timestamps are special values such as EARLIEST.
        if time_ms < 0:
            raise OptionError(option, f"{time_ms} is not a time for {partition}")
    return times


def _before(now_ms: int, ago_ms: int) -> int:
    return max(0, now_ms - ago_ms)


def _milliseconds(option: str, text: str, match: re.Match[str] | None) -> int:
    unit = match and match[2].lower()
    factor = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s")) if unit else None
    if match is None or factor is None:
        raise OptionError(
            option, f"{text!r} is not a time; write milliseconds, or a number with a unit such as '-10 minutes'"
        )
    return int(match[1]) * factor


def _by_partition(option: str, document: Mapping[str, Any]) -> dict[TopicPartition, int]:
    numbers: dict[TopicPartition, int] = {}
    for topic, values in document.items():
        if not isinstance(values, dict):
            raise OptionError(option, f'{topic!r} needs a number for each partition, as in {{"{topic}": {{"0": 23}}}}')
        for partition, value in values.items():
            if not partition.isdecimal() or type(value) is not int:
                raise OptionError(option, f"{topic!r} has {partition!r}: {value!r}, which is not a partition's number")
            numbers[TopicPartition(topic, int(partition))] = value
    if not numbers:
        raise OptionError(option, "it names no partition")
    return numbers


# Options of Spark's Kafka source that are accepted and have no effect.
_IGNORED = ("groupIdPrefix", "partition.metadata.cache.ttl.ms", "kafkaConsumer.pollTimeoutMs")
_TRIGGER_DELAY_MS = 15 * 60_000
_FETCH_BYTES = 8 << 20
# A response must fit a frame of the client, and a task holds several.
_FETCH_BYTES_MAX = 64 << 20
_FETCH_WAIT_MS = 1_000
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay")
_VALUE_FORMATS = ("binary", "json", "avro", "protobuf")
_BATCH_ONLY = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")


class ConnectionOptions(NamedTuple):
    """Connection to the cluster, and limits of retries: `retries` and `retry_interval_ms` are None if not given."""

    bootstrap_servers: str
    client_id: str = "logbrook-spark"
    timeout_s: float = 30.0
    retries: int | None = None
    retry_interval_ms: int | None = None
    # Limit of connecting; None for Kafka's default, at most that of a request.
    connect_timeout_s: float | None = None
    outage_timeout_s: float = OUTAGE_TIMEOUT_S
    security: ClientSecurity = PLAINTEXT_SECURITY

    @property
    def retry(self) -> RetryPolicy:
        """The policy while the cluster is away."""
        return outage_retry(self.bootstrap_servers, self.outage_timeout_s, self.retries, self._interval_s)

    @property
    def start_retry(self) -> RetryPolicy:
        """The policy until the cluster has answered for the first time; a given number of retries holds there, too."""
        return start_retry() if self.retries is None else self.retry

    @property
    def brief_retry(self) -> RetryPolicy:
        """The policy for errors that no outage explains."""
        return brief_retry(self.retries, self._interval_s)

    @property
    def _interval_s(self) -> float | None:
        return None if self.retry_interval_ms is None else self.retry_interval_ms / 1000


class AdmissionLimits(NamedTuple):
    """Admission control: the size of a micro-batch. `delay_ms` bounds the wait for `offsets_min`."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    bytes_max: int | None = None
    delay_ms: int = _TRIGGER_DELAY_MS


class FetchLimits(NamedTuple):
    """Size of a fetch, and how long a broker may wait for records."""

    bytes_max: int = _FETCH_BYTES
    wait_ms: int = _FETCH_WAIT_MS


class ReadOptions(NamedTuple):
    """All options of a read."""

    cluster: ConnectionOptions
    subscription: Subscription
    starting: OffsetSpec
    ending: OffsetSpec
    fail_on_missing_timestamp: bool
    fail_on_data_loss: bool
    limits: AdmissionLimits
    splits_min: int | None
    split_records_max: int | None
    columns: tuple[str, ...]
    group_id: str | None
    is_committed_only: bool
    is_json: bool
    # Set once Spark has parsed the DDL; None if values are not parsed.
    value_schema: StructType | None = None
    fetch: FetchLimits = FetchLimits()
    # Values with a schema in a registry, and the schema to read them with, which is set once it is known.
    registered: RegisteredFormat | None = None
    reader_schema: ReaderSchema | None = None


def read_options(options: Mapping[str, str], *, is_batch: bool) -> ReadOptions:
    """Parse the options of a read. Raises OptionError."""
    reader = OptionReader(options)
    accept_client_options(reader, is_write=False)
    for name in _IGNORED:
        reader.text(name)
    for name in _STREAM_ONLY if is_batch else _BATCH_ONLY:
        if name in reader:
            raise OptionError(name, f"it is for {'streams' if is_batch else 'batch queries'}")
    now_ms = round(time.time() * 1000)
    strategy = reader.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    isolation = reader.choice("isolation.level", ("read_uncommitted", "read_committed"), "read_uncommitted")
    parsed = ReadOptions(
        cluster=read_cluster_options(reader),
        subscription=read_subscription(reader),
        starting=read_offset_spec(reader, RangeBound.STARTING, now_ms, is_batch=is_batch),
        ending=read_offset_spec(reader, RangeBound.ENDING, now_ms, is_batch=is_batch),
        fail_on_missing_timestamp=strategy == "error",
        fail_on_data_loss=reader.boolean("failOnDataLoss", True),
        limits=_read_limits(reader),
        splits_min=reader.integer("minPartitions", None, at_least=1),
        split_records_max=reader.integer("maxRecordsPerPartition", None, at_least=1),
        columns=read_columns(reader),
        group_id=reader.text("group.id"),
        is_committed_only=isolation == "read_committed",
        is_json=read_value_format(reader)[0],
        fetch=_read_fetch_limits(reader),
        registered=read_registered(reader),
    )
    reader.finish()
    check_order(parsed.starting, parsed.ending)
    return parsed


def read_cluster_options(options: OptionReader) -> ConnectionOptions:
    connect_ms = options.integer("socket.connection.setup.timeout.ms", None, at_least=1)
    return ConnectionOptions(
        bootstrap_servers=options.required("kafka.bootstrap.servers"),
        client_id=options.text("client.id") or "logbrook-spark",
        timeout_s=options.integer("request.timeout.ms", 30_000, at_least=1) / 1000,
        retries=options.integer("fetchOffset.numRetries", None, at_least=0),
        retry_interval_ms=options.integer("fetchOffset.retryIntervalMs", None, at_least=0),
        connect_timeout_s=None if connect_ms is None else connect_ms / 1000,
        outage_timeout_s=options.integer("default.api.timeout.ms", round(OUTAGE_TIMEOUT_S * 1000), at_least=0) / 1000,
        security=options.security(),
    )


def read_columns(options: OptionReader) -> tuple[str, ...]:
    """Return the selected columns: those of `columns`, else all, with headers only if `includeHeaders`."""
    includes_headers = options.boolean("includeHeaders", False)
    text = options.text("columns")
    if text is None:
        return tuple(name for name in COLUMNS if includes_headers or name != "headers")
    available = COLUMNS if options.text(REGISTRY_URL) is None else (*COLUMNS, *DECODING_COLUMNS)
    by_lower = {name.lower(): name for name in available}
    columns = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in columns if name.lower() not in by_lower]
    if not columns or unknown or len(set(map(str.lower, columns))) != len(columns):
        raise OptionError("columns", f"it must list distinct columns out of {', '.join(available)}, not {text!r}")
    return tuple(by_lower[name.lower()] for name in columns)


def read_value_format(options: OptionReader) -> tuple[bool, str | None]:
    """Return True if values are parsed as JSON without a registry, and their schema as DDL if the option gives it."""
    format_ = options.choice("value.format", _VALUE_FORMATS, "binary")
    schema = options.text("value.schema")
    if schema is not None and format_ == "binary":
        raise OptionError("value.schema", "it is only for 'value.format' json, avro or protobuf")
    return format_ == "json" and options.text(REGISTRY_URL) is None, schema


def read_registered(options: OptionReader) -> RegisteredFormat | None:
    """Return the format of values whose schemas are in a registry, or None."""
    return read_registered_format(options, options.choice("value.format", _VALUE_FORMATS, "binary"))


def _read_fetch_limits(options: OptionReader) -> FetchLimits:
    sizes = [options.integer(name, None, at_least=1) for name in ("fetch.max.bytes", "max.partition.fetch.bytes")]
    return FetchLimits(
        bytes_max=min(_FETCH_BYTES_MAX, min((size for size in sizes if size is not None), default=_FETCH_BYTES)),
        wait_ms=options.integer("fetch.max.wait.ms", _FETCH_WAIT_MS, at_least=0),
    )


def _read_limits(options: OptionReader) -> AdmissionLimits:
    offsets_max = options.integer("maxOffsetsPerTrigger", None, at_least=1)
    offsets_min = options.integer("minOffsetsPerTrigger", None, at_least=1)
    if offsets_max is not None and offsets_min is not None and offsets_min > offsets_max:
        raise OptionError("minOffsetsPerTrigger", f"{offsets_min} is more than maxOffsetsPerTrigger, {offsets_max}")
    delay = options.text("maxTriggerDelay")
    return AdmissionLimits(
        offsets_max=offsets_max,
        offsets_min=offsets_min,
        bytes_max=options.integer("maxBytesPerTrigger", None, at_least=1),
        delay_ms=_TRIGGER_DELAY_MS if delay is None else read_duration_ms("maxTriggerDelay", delay),
    )
