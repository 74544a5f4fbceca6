"""The root of every error that Logbrook raises on purpose.

Each subsystem derives its own from `LogbrookError`, in its own `errors.py`, and gives them the facts as attributes:
a reader of a log, a metric and the wire mapping need the topic, the offset and the file, not a sentence to parse.
"""


class LogbrookError(Exception):
    """Something went wrong that the caller can be told about."""


class InvalidTopicNameError(LogbrookError):
    """A topic name that may not become a directory, or that Kafka would refuse."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"topic name {name!r} {reason}")
        self.name = name
        self.reason = reason


class NothingNamedSoError(LogbrookError):
    """A name that is none of the partitions, and none of their topics."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no partition or topic {name} here")
        self.name = name


class InvalidPartitionError(LogbrookError):
    """A partition number that Kafka has no place for."""

    def __init__(self, number: int) -> None:
        super().__init__(f"partition number {number} is not between 0 and 2147483647")
        self.number = number
