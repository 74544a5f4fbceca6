"""Exactly-once tables on Delta, Iceberg or plain Parquet, written and read by Spark without a JAR.

Tasks write Parquet files under names that nobody else has, and tell the driver about them. The driver publishes the
files of a micro-batch in one commit of the table, which also holds the writer's id and the batch's id: whoever replays
a batch finds it there and publishes nothing. A file that no commit names is no part of the table.

Nothing is imported here, because every process that Spark starts for a table imports this package.
"""
