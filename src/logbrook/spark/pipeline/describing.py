"""A pipeline in words, for whoever wants to see what would run."""

from collections.abc import Iterator, Mapping

from pyspark.sql.types import StructType

from logbrook.spark.pipeline.compiling import Compiled
from logbrook.spark.pipeline.reading import Options
from logbrook.spark.pipeline.spec import Pipeline, Sink


def describe(pipeline: Pipeline, compiled: Compiled, readers: Mapping[str, Options]) -> str:
    """Sources, views with their columns, sinks and the trigger, one fact a line."""
    return "\n".join(_lines(pipeline, compiled, readers))


def _lines(pipeline: Pipeline, compiled: Compiled, readers: Mapping[str, Options]) -> Iterator[str]:
    yield f"pipeline {pipeline.name} at {pipeline.bootstrap_servers}"
    yield f"  checkpoint {pipeline.checkpoint}"
    yield f"  trigger    {trigger_text(pipeline.trigger_ms)}"
    for source in pipeline.sources:
        option, topics = source.subscription
        what = f"topics like {topics}" if option == "subscribePattern" else f"topic {topics}"
        starting = readers[source.name]["startingOffsets"]
        yield f"source {source.name}: {what}, {source.format}, from {starting}"
        yield from _columns(compiled.schemas[source.name])
        if source.watermark is not None:
            yield f"  watermark {source.watermark.column}, {source.watermark.delay}"
    for view in pipeline.views:
        yield f"view {view.name}"
        yield from _columns(compiled.schemas[view.name])
    for sink in pipeline.sinks:
        group = pipeline.group_of(sink.name)
        yield f"sink {sink.name}: {sink.view} -> {_target(sink)}, mode {sink.mode}, group {group}"
    if pipeline.dead_letters is None:
        yield "dead letters: none, a record that does not parse stops the pipeline"
    else:
        yield f"dead letters: topic {pipeline.dead_letters}"


def trigger_text(trigger_ms: int | None) -> str:
    return "once" if trigger_ms is None else f"every {trigger_ms / 1000:g} s"


def _columns(schema: StructType) -> Iterator[str]:
    width = max((len(name) for name in schema.names), default=0)
    for field in schema.fields:
        yield f"  {field.name:<{width}} {field.dataType.simpleString()}"


def _target(sink: Sink) -> str:
    if not sink.is_table:
        return f"topic {sink.target}" + (f" by {sink.key}" if sink.key else "")
    parts = sink.options.get("partition.by")
    form = sink.options["table.format"]
    return f"{form} table {sink.target}" + (f" by {parts}" if parts else "")
