"""Spark data sources, tables, pipelines and bulk jobs over the Kafka protocol, in Python and without a JAR.

Two formats are registered with Spark: `logbrook` (topics, read and written) and `logbrook_table` (exactly-once tables).
They use only the wire protocol, so they work with Logbrook and with any other Kafka cluster.

Flow of the data sources, by module:

- Batch read: `source.LogbrookDataSource` parses `read_options` -> `source.TopicReader.partitions` asks
  `planner.Planner` for partitions and offsets, narrows them by pushed-down filters and splits them into tasks
  (`offset_ranges`) -> each task runs `fetching.read_range`, which fetches record batches, decodes them to Arrow
  and, with `value.format=json`, parses values (`json_values`), or decodes those of a schema registry (`schemas`).
- Stream: `stream_reader.TopicStreamReader` does the same per micro-batch; `latestOffset` applies admission control and
  commits the progress as a consumer group; the offsets in Spark's checkpoint are a JSON document.
- Topic sink: `source` -> `writer` (schema check) -> each task runs `sending.send_rows` with a `partitioner.Partitioner`
  and an idempotent producer, or `exactly_once.send_once` in one transaction per task and micro-batch. `micro_batch`
  identifies batch writes, such as those inside `foreachBatch`.
- Tables: see `tables`. Pipelines (`logbrook pipeline`): see `pipeline`. Bulk jobs: see `jobs`.

`sessions` creates or prepares a SparkSession with `session_settings`, `java` finds the JVM, `spark_home` and
`worker_daemon` make its Python processes start faster, `worker_memory` makes their tasks end faster, and `pruning` adds
column pruning to Spark's optimizer.
`arrow_batches` splits and gathers the batches between Spark and Python, `headers` replaces null headers, `schema` holds
the row schema, `options` the generic option parser, `client_options` the table of Kafka's client options,
`topic_patterns` the translation of `subscribePattern`, and `errors` every error type. `outages` has the retry policies,
`contacts` and `outage_notes` tell the processes of an application which clusters have answered and which do not, by
`application_files`. `socket_directory` is for Spark's sockets. `checkpoint_import` converts checkpoints of Spark's
Kafka source, with `checkpoint_files`.

Imports: `client`, `pipelines`, `records`, `protocol`, `config`, `model`; never `storage`, `core` or `server`. The
driver's planning processes start often, so modules that load numba, numpy or pyarrow (`fetching`, `sending`,
`partitioner`, `json_values`) are imported inside the functions that tasks run.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logbrook.spark.sessions import register, session

__all__ = ["register", "session"]


def __getattr__(name: str) -> Any:
    # PySpark is imported on first use: options and errors must be importable without it.
    if name in __all__:
        from logbrook.spark import sessions  # noqa: PLC0415

        return getattr(sessions, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
