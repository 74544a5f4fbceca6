"""Progress reports of running pipelines, in a compacted topic of the cluster they work with.

A `report.PipelineReport` is a record's JSON value, keyed by the pipeline's name. `reporter.PipelineReporter` sends
reports from a background thread while a pipeline runs (`logbrook.spark.pipeline`). `report_reader.read_new_reports`
reads them incrementally for the console, its HTTP API and `logbrook pipeline list`, without Spark. Imports `client` and
below.
"""
