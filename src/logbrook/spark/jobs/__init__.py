"""Bulk jobs on Spark, each a command of the CLI.

`archive` appends the records of topics to a table, each once (`logbrook archive`); `replay` writes rows of a topic or a
table to a topic, optionally paced by their timestamps (`logbrook replay`); `audit` checks every record of topics and
counts per partition (`logbrook audit`). They use `planner` and `offset_ranges` for what to read, `fetching` and
`sending` inside tasks, and `tables`. They may import everything that `logbrook.spark` may.
"""
