"""`logbrook pipeline`: streaming pipelines from topics through SQL views into topics and tables.

Flow of `logbrook pipeline run orders.toml`: `command.run` -> `file.read_pipeline` parses the TOML file (`toml_table`)
into a `spec.PipelineSpec` -> `sources.resolve_sources` checks topics and fixes starting offsets ->
`compiling.PipelineCompiler` creates the views (`parsing` turns records into rows and dead letters) and a
`PreparedQuery` per sink -> `running.QueryRunner` starts the queries, polls their progress and stops them. `display`
shows the progress, `running.ReportingDisplay` also sends it to the reports topic (`logbrook.pipelines`), and
`maintaining` optimizes and vacuums tables meanwhile. A pipeline in a Python file goes through `python_file` instead of
the first four. `templates` are the projects that `logbrook pipeline init` writes.

Only `command` and the modules behind `compiling` import PySpark; files are checked before Spark starts. May import
`logbrook.config`, `logbrook.pipelines` and the rest of `logbrook.spark`.
"""
