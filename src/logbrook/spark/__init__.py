"""Logbrook on Spark: topics as DataFrames, exactly-once tables, pipelines and bulk jobs, with no JAR.

It speaks the wire protocol alone, so it works against Logbrook and against any other Kafka cluster.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logbrook.spark.sessions import register, session

__all__ = ["register", "session"]


def __getattr__(name: str) -> Any:
    # Spark is imported when it is asked for, so that the options, the errors and the client come without it.
    if name in __all__:
        from logbrook.spark import sessions  # noqa: PLC0415

        return getattr(sessions, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
