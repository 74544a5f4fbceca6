"""Resolution of a pipeline's sources before Spark starts: existence of topics, and starting offsets.

All queries of a source must start at the same offsets, so `latest` and timestamps are resolved once. Otherwise a record
that arrives between the starts of two queries would reach only one of them, and an unparsable one could be dropped by
the sink without reaching the dead letters.
"""

import json
from collections.abc import Mapping
from contextlib import closing

from logbrook.client import EARLIEST, ClientError
from logbrook.client.partition_requests import PartitionRequests
from logbrook.config.errors import Problem
from logbrook.spark.errors import InvalidPipelineError, MissingTopicError, OptionError, UnreachableError
from logbrook.spark.options import KAFKA_PREFIX
from logbrook.spark.pipeline.spec import PipelineSpec, SourceSpec
from logbrook.spark.planner import Planner, connect
from logbrook.spark.read_options import ReadOptions, read_options

_STARTING = ("startingtimestamp", "startingoffsetsbytimestamp", "startingoffsets")
# Read options that the pipeline sets, with the key of the file that determines them.
_SET_BY_PIPELINE = {
    "bootstrap.servers": "bootstrap_servers",
    "subscribe": "topic",
    "subscribepattern": "pattern",
    "startingoffsets": "starting",
    "columns": "schema",
    "includeheaders": "schema",
    "group.id": "name",
    "value.format": "format",
    "value.schema": "schema",
    "schema.registry.url": "schema_registry",
}

Options = dict[str, str]


def resolve_sources(pipeline: PipelineSpec, start: str | None = None) -> dict[str, Options]:
    """Return the read options by source name, with the starting offsets of new queries.

    `start` overrides each source's `starting`. Raises InvalidPipelineError, MissingTopicError or UnreachableError.
    """
    options = {source.name: _reader_options(pipeline, source, start) for source in pipeline.sources}
    read: dict[str, ReadOptions] = {}
    problems = []
    for source in pipeline.sources:
        try:
            _reject_reserved_options(source)
            read[source.name] = read_options(options[source.name], is_batch=False)
        except OptionError as error:
            # An error in --from belongs to the command line, which has no line number.
            is_flag = start is not None and error.name == "startingOffsets"
            message = f"--from: {error.reason}" if is_flag else f"sources.{source.name}: {error}"
            problems.append(
                Problem("command line" if is_flag else pipeline.path, message, 0 if is_flag else source.line)
            )
    if problems:
        raise InvalidPipelineError(list(dict.fromkeys(problems)))
    check_topics(pipeline, read)
    return {name: _with_fixed_start(options[name], parsed) for name, parsed in read.items()}


def check_topics(pipeline: PipelineSpec, read: Mapping[str, ReadOptions]) -> None:
    """Raise MissingTopicError naming all missing topics that the pipeline reads or writes by name."""
    names = [name for options in read.values() for name in options.subscription.names or ()]
    names += [sink.target for sink in pipeline.sinks if not sink.is_table]
    names += [pipeline.dead_letters] if pipeline.dead_letters is not None else []
    wanted = list(dict.fromkeys(names))
    cluster = PartitionRequests(connect(next(iter(read.values())).cluster))
    try:
        existing = cluster.topics(wanted) if wanted else {}
    except ClientError as error:
        raise UnreachableError(pipeline.bootstrap_servers, str(error)) from error
    finally:
        cluster.client.close()
    missing = [f"topic {name!r}" for name in wanted if name not in existing]
    if missing:
        raise MissingTopicError(" and no ".join(missing), pipeline.bootstrap_servers)


def _reader_options(pipeline: PipelineSpec, source: SourceSpec, start: str | None) -> Options:
    # A partition without a record since the starting time must not prevent the start.
    defaults = {"startingOffsetsByTimestampStrategy": "latest"}
    given = source.options if start is None else _without_start(source.options)
    subscription = dict([source.subscription])
    own = {"kafka.bootstrap.servers": pipeline.bootstrap_servers, "startingOffsets": start or source.starting}
    return {**defaults, **pipeline.client, **given, **subscription, **own, **_value_options(pipeline, source)}


def _value_options(pipeline: PipelineSpec, source: SourceSpec) -> Options:
    if not source.is_registered:
        return {}
    assert pipeline.schema_registry is not None
    options = {"value.format": str(source.format), "schema.registry.url": pipeline.schema_registry}
    return options if source.schema is None else options | {"value.schema": source.schema}


def _with_fixed_start(options: Options, read: ReadOptions) -> Options:
    spec = read.starting
    if spec.timestamp_ms == EARLIEST or spec.offsets is not None:
        # The log start offset advances with retention, so `earliest` is resolved when the query starts.
        return options
    with closing(Planner(read)) as planner:
        starting = planner.starting(planner.partitions(planner.topics()))
    document: dict[str, dict[str, int]] = {}
    for partition, offset in starting.items():
        document.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return _without_start(options) | {"startingOffsets": json.dumps(document)}


def _without_start(options: Mapping[str, str]) -> Options:
    return {name: value for name, value in options.items() if _normalized(name) not in _STARTING}


def _reject_reserved_options(source: SourceSpec) -> None:
    for name in source.options:
        if key := _SET_BY_PIPELINE.get(_normalized(name)):
            raise OptionError(name, f"the pipeline sets it, from {key}")


def _normalized(name: str) -> str:
    return name.lower().removeprefix(KAFKA_PREFIX)
