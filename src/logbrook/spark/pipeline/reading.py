"""What a pipeline asks of the cluster before Spark starts: whether its topics are there, and where it begins.

All queries of a source begin at the same offsets, so "latest" and times are looked up once: otherwise a record that
comes between the starts of two queries would be known to one of them only, and a dead letter might be nobody's.
"""

import json
from collections.abc import Mapping

from logbrook.client import EARLIEST, ClientError
from logbrook.client.cluster import Cluster
from logbrook.config.errors import Problem
from logbrook.spark.errors import OptionError, TopicMissingError, UnreachableError
from logbrook.spark.options import KAFKA_PREFIX
from logbrook.spark.pipeline.errors import PipelineRefusedError
from logbrook.spark.pipeline.spec import Pipeline, Source
from logbrook.spark.planner import Planner, connect
from logbrook.spark.read_options import ReadOptions, read_options

_STARTING = ("startingtimestamp", "startingoffsetsbytimestamp", "startingoffsets")
# Each with the key that says it instead.
_SET_BY_PIPELINE = {
    "bootstrap.servers": "bootstrap_servers",
    "subscribe": "topic",
    "subscribepattern": "pattern",
    "startingoffsets": "starting",
    "columns": "schema",
    "includeheaders": "schema",
    "group.id": "name",
}

Options = dict[str, str]


def find_sources(pipeline: Pipeline, start: str | None = None) -> dict[str, Options]:
    """The options of each source's reader, with the offsets at which new queries begin.

    `start` is said in place of each source's own. Raises PipelineRefusedError, TopicMissingError or UnreachableError.
    """
    options = {source.name: _reader_options(pipeline, source, start) for source in pipeline.sources}
    read: dict[str, ReadOptions] = {}
    problems = []
    for source in pipeline.sources:
        try:
            _refuse_what_is_set(source)
            read[source.name] = read_options(options[source.name], is_batch=False)
        except OptionError as error:
            # What the command line says has no line.
            is_flag = start is not None and error.name == "startingOffsets"
            what = f"--from: {error.reason}" if is_flag else f"sources.{source.name}: {error}"
            problems.append(Problem("command line" if is_flag else pipeline.path, what, 0 if is_flag else source.line))
    if problems:
        raise PipelineRefusedError(list(dict.fromkeys(problems)))
    check_topics(pipeline, read)
    return {name: _fixed(options[name], found) for name, found in read.items()}


def check_topics(pipeline: Pipeline, read: Mapping[str, ReadOptions]) -> None:
    """Raises TopicMissingError with all topics that are read or written by name and are not there."""
    names = [name for options in read.values() for name in options.subscription.names or ()]
    names += [sink.target for sink in pipeline.sinks if not sink.is_table]
    names += [pipeline.dead_letters] if pipeline.dead_letters is not None else []
    wanted = list(dict.fromkeys(names))
    cluster = Cluster(connect(next(iter(read.values())).cluster))
    try:
        found = cluster.topics(wanted) if wanted else {}
    except ClientError as error:
        raise UnreachableError(pipeline.bootstrap_servers, str(error)) from error
    finally:
        cluster.client.close()
    missing = [f"topic {name!r}" for name in wanted if name not in found]
    if missing:
        raise TopicMissingError(" and no ".join(missing), pipeline.bootstrap_servers)


def _reader_options(pipeline: Pipeline, source: Source, start: str | None) -> Options:
    # A quiet partition has no record of the last hour, which is no reason not to start.
    defaults = {"startingOffsetsByTimestampStrategy": "latest"}
    given = source.options if start is None else _without_start(source.options)
    subscription = dict([source.subscription])
    own = {"kafka.bootstrap.servers": pipeline.bootstrap_servers, "startingOffsets": start or source.starting}
    return {**defaults, **given, **subscription, **own}


def _fixed(options: Options, read: ReadOptions) -> Options:
    position = read.starting
    if position.everywhere == EARLIEST or position.offsets is not None:
        # The earliest moves on as old records go, and is best looked up when it is needed.
        return options
    planner = Planner(read)
    try:
        starting = planner.starting(planner.partitions(planner.topics()))
    finally:
        planner.close()
    document: dict[str, dict[str, int]] = {}
    for partition, offset in starting.items():
        document.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return _without_start(options) | {"startingOffsets": json.dumps(document)}


def _without_start(options: Mapping[str, str]) -> Options:
    return {name: value for name, value in options.items() if _short(name) not in _STARTING}


def _refuse_what_is_set(source: Source) -> None:
    for name in source.options:
        if key := _SET_BY_PIPELINE.get(_short(name)):
            raise OptionError(name, f"the pipeline sets it itself, from {key}")


def _short(name: str) -> str:
    return name.lower().removeprefix(KAFKA_PREFIX)
