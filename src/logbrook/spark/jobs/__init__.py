"""Bulk jobs on Spark: topics to tables, tables and topics to topics, and a look at every record."""
