"""What goes wrong between Spark and a topic, each in one sentence that names it."""

from logbrook.model import LogbrookError


class SparkError(LogbrookError):
    """The root of this package's errors."""


class OptionError(SparkError):
    """An option that is not known, not allowed, or at odds with another."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"option {name!r}: {reason}")
        self.name = name
        self.reason = reason


class TopicMissingError(SparkError):
    def __init__(self, topics: str, servers: str) -> None:
        super().__init__(f"there is no {topics} at {servers}; create it first, or correct the name")


class UnreachableError(SparkError):
    """Nobody could be asked."""

    def __init__(self, servers: str, reason: str) -> None:
        super().__init__(f"the cluster at {servers} cannot be asked: {reason}")


class DataLossError(SparkError):
    """Records that the query was to read are gone."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; to go on with what there is, set failOnDataLoss to false")


class CorruptRecordsError(SparkError):
    """Bytes that are not what their writer sent."""

    def __init__(self, partition: str, offset: int, reason: str) -> None:
        super().__init__(f"{partition} has a batch at or after offset {offset} that cannot be read: {reason}")


class RecordError(SparkError):
    """A row that cannot be a record of its topic."""

    def __init__(self, topic: str | None, partition: int | None, key_length: int | None, reason: str) -> None:
        where = "no topic" if topic is None else f"topic {topic!r}"
        where += "" if partition is None else f", partition {partition},"
        key = "without a key" if key_length is None else f"with a key of {key_length} bytes"
        super().__init__(f"a record for {where} {key} cannot be written: {reason}")
        self.topic = topic
        self.partition = partition
        self.key_length = key_length
        self.reason = reason
