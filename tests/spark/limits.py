"""Deadlines for queries and processes: a test that waits for either fails instead of hanging."""

from pyspark.sql.streaming.query import StreamingQuery

QUERY_S_MAX = 180
PROCESS_S_MAX = 300.0


def finish(query: StreamingQuery, within_s: int = QUERY_S_MAX) -> StreamingQuery:
    """Wait for the end of a query and return it. Raises its error, or AssertionError if it still runs."""
    if not query.awaitTermination(within_s):
        status, progress = query.status, query.lastProgress
        query.stop()
        raise AssertionError(f"query {query.name or query.id} ran for {within_s} s: {status}, {progress}")
    return query
