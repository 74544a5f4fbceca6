#!/bin/sh
# One incremental run. The Hive catalog in metastore_db persists the tables between runs.
cd "$(dirname "$0")" || exit 1
exec spark-pipelines run --conf spark.sql.catalogImplementation=hive "$@"
