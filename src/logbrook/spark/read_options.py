"""The options of a reader: the names of Spark's Kafka source, and ours."""

import time
from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql.types import StructType

from logbrook.spark.errors import OptionError
from logbrook.spark.options import OptionReader
from logbrook.spark.positions import Edge, Position, read_duration_ms, read_position
from logbrook.spark.schema import COLUMNS
from logbrook.spark.subscription import Subscription, read_subscription

# What would change what Spark itself keeps track of, with what to say instead.
_REFUSED = {
    "auto.offset.reset": "say where to begin with startingOffsets",
    "enable.auto.commit": "say with group.id that progress is to be committed",
    "key.deserializer": "keys are bytes; cast them in the query",
    "value.deserializer": "values are bytes; cast them in the query",
    "interceptor.classes": "there are none",
}
# Known to Spark's Kafka source, and without a meaning here.
_WITHOUT_MEANING = ("groupIdPrefix", "partition.metadata.cache.ttl.ms", "kafkaConsumer.pollTimeoutMs")
_TRIGGER_DELAY_MS = 15 * 60_000
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay", "group.id")
_VALUE_FORMATS = ("binary", "json")
_BATCH_ONLY = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")


class ClusterOptions(NamedTuple):
    """How the cluster is reached."""

    bootstrap_servers: str
    client_id: str = "logbrook-spark"
    timeout_s: float = 30.0
    retries: int = 3
    retry_interval_ms: int = 200


class Limits(NamedTuple):
    """How much a micro-batch takes."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    bytes_max: int | None = None
    delay_ms: int = _TRIGGER_DELAY_MS


class ReadOptions(NamedTuple):
    """Everything that a reader is told."""

    cluster: ClusterOptions
    subscription: Subscription
    starting: Position
    ending: Position
    fails_without_time: bool
    fail_on_data_loss: bool
    limits: Limits
    splits_min: int | None
    split_records_max: int | None
    columns: tuple[str, ...]
    group_id: str | None
    is_committed_only: bool
    is_json: bool
    # Known once Spark has parsed it.
    value_schema: StructType | None = None


def read_options(options: Mapping[str, str], *, is_batch: bool) -> ReadOptions:
    """Raises OptionError."""
    reader = OptionReader(options)
    for name, instead in _REFUSED.items():
        if name in reader:
            raise OptionError(name, f"it cannot be set here; {instead}")
    for name in _WITHOUT_MEANING:
        reader.text(name)
    for name in _STREAM_ONLY if is_batch else _BATCH_ONLY:
        if name in reader:
            raise OptionError(name, f"it is for {'streams' if is_batch else 'batch queries'}")
    now_ms = round(time.time() * 1000)
    strategy = reader.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    isolation = reader.choice("isolation.level", ("read_uncommitted", "read_committed"), "read_uncommitted")
    found = ReadOptions(
        cluster=read_cluster_options(reader),
        subscription=read_subscription(reader),
        starting=read_position(reader, Edge.STARTING, now_ms, is_batch=is_batch),
        ending=read_position(reader, Edge.ENDING, now_ms, is_batch=is_batch),
        fails_without_time=strategy == "error",
        fail_on_data_loss=reader.boolean("failOnDataLoss", True),
        limits=_read_limits(reader),
        splits_min=reader.integer("minPartitions", at_least=1),
        split_records_max=reader.integer("maxRecordsPerPartition", at_least=1),
        columns=read_columns(reader),
        group_id=reader.text("group.id"),
        is_committed_only=isolation == "read_committed",
        is_json=read_value_format(reader)[0],
    )
    reader.finish()
    return found


def read_cluster_options(options: OptionReader) -> ClusterOptions:
    timeout_ms = options.integer("request.timeout.ms", 30_000, at_least=1)
    retries = options.integer("fetchOffset.numRetries", 3, at_least=0)
    interval_ms = options.integer("fetchOffset.retryIntervalMs", 200, at_least=0)
    assert timeout_ms is not None
    assert retries is not None
    assert interval_ms is not None
    return ClusterOptions(
        bootstrap_servers=options.required("kafka.bootstrap.servers"),
        client_id=options.text("client.id") or "logbrook-spark",
        timeout_s=timeout_ms / 1000,
        retries=retries,
        retry_interval_ms=interval_ms,
    )


def read_columns(options: OptionReader) -> tuple[str, ...]:
    """The columns of a row: those that are named, else all, with headers only when they are asked for."""
    includes_headers = options.boolean("includeHeaders", False)
    text = options.text("columns")
    if text is None:
        return tuple(name for name in COLUMNS if includes_headers or name != "headers")
    by_lower = {name.lower(): name for name in COLUMNS}
    columns = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in columns if name.lower() not in by_lower]
    if not columns or unknown or len(set(map(str.lower, columns))) != len(columns):
        raise OptionError("columns", f"it must name different ones of {', '.join(COLUMNS)}, not {text!r}")
    return tuple(by_lower[name.lower()] for name in columns)


def read_value_format(options: OptionReader) -> tuple[bool, str | None]:
    """Whether values are JSON, and the schema of those that are, in SQL. A schema may also come with the query."""
    is_json = options.choice("value.format", _VALUE_FORMATS, "binary") == "json"
    schema = options.text("value.schema")
    if schema is not None and not is_json:
        raise OptionError("value.schema", "it is for values that 'value.format' says are json")
    return is_json, schema


def _read_limits(options: OptionReader) -> Limits:
    offsets_max = options.integer("maxOffsetsPerTrigger", at_least=1)
    offsets_min = options.integer("minOffsetsPerTrigger", at_least=1)
    if offsets_max is not None and offsets_min is not None and offsets_min > offsets_max:
        raise OptionError("minOffsetsPerTrigger", f"{offsets_min} is more than maxOffsetsPerTrigger, {offsets_max}")
    delay = options.text("maxTriggerDelay")
    return Limits(
        offsets_max=offsets_max,
        offsets_min=offsets_min,
        bytes_max=options.integer("maxBytesPerTrigger", at_least=1),
        delay_ms=_TRIGGER_DELAY_MS if delay is None else read_duration_ms("maxTriggerDelay", delay),
    )
