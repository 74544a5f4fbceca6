"""The base class of Logbrook's errors, and errors about names of topics and partitions.

Each subsystem derives its errors from `LogbrookError` in its own `errors.py`. Errors carry their facts (topic, offset,
file) as attributes, for logging, metrics and the mapping to wire codes.
"""


class LogbrookError(Exception):
    """Base class of errors that are reported to the caller, as opposed to bugs."""


class InvalidTopicNameError(LogbrookError):
    """The topic name violates Kafka's rules."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"topic name {name!r} {reason}")
        self.name = name
        self.reason = reason


class UnknownPartitionNameError(LogbrookError):
    """The name matches no partition and no topic."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no partition or topic {name} here")
        self.name = name


class InvalidPartitionError(LogbrookError):
    """The partition number is not an int32 of at least 0."""

    def __init__(self, number: int) -> None:
        super().__init__(f"partition number {number} is not between 0 and 2147483647")
        self.number = number
