"""Exactly-once tables in Delta, Iceberg or plain Parquet format, written and read by Spark without a JAR.

Commit protocol. Tasks write Parquet files under unique names and report them to the driver. The driver publishes all
files of a micro-batch in one table commit that also holds the writer's `app.id` and the batch id. A replayed batch
finds its id in the table and publishes nothing: writes are idempotent. A file that no commit references is not part of
the table; `maintenance.vacuum` deletes it later.

Flow of a write: `source.TableDataSource` -> `source.plan_write` on the driver checks the schema (`schema`) and creates
or extends the table -> each task runs `source.WritePlan.run` with `files.TableFileWriter` ->
`source.StreamTableWriter.commit` calls `commits.publish`, which retries on conflict -> `TableVersion.commit` of
`delta`, `iceberg` or `parquet`. `format` defines what a table format provides, and the options of
`logbrook_table`; `location` parses the paths and URIs of tables; `storage` has the file operations of a store, with
`object_storage` and `hadoop_storage`, and `store_options` their settings; `union` reads a table and the newer records
of its topic as one DataFrame; `maintenance` compacts and vacuums. With
`write.mode=upsert` (`upsert` has the rules) the tasks' files contain changes, and `commits.publish` commits the data
files of `merging.merge_changes` instead.

Imports: `spark.errors`, `spark.options`, and for `union` the planner. This package's `__init__` imports nothing,
because every process that Spark starts for a table imports it.
"""
