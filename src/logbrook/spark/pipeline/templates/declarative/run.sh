#!/bin/sh
# One run: all that has come since the last one. The catalog is Spark's own, in metastore_db, so that the next run knows
# the tables of this one.
cd "$(dirname "$0")" || exit 1
exec spark-pipelines run --conf spark.sql.catalogImplementation=hive "$@"
