"""What can be wrong with a pipeline, and the exit code of each."""

from collections.abc import Sequence

from logbrook.config.errors import Problem
from logbrook.spark.errors import SparkError, TopicMissingError, UnreachableError
from logbrook.spark.exit_codes import FAILED, NO_SPARK, UNREACHABLE, WRONG
from logbrook.spark.java import JavaError


class PipelineError(SparkError):
    """The root of a pipeline's errors."""


class PipelineRefusedError(PipelineError):
    """The file or the options are wrong; all that is wrong with them is in `problems`."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class ProgressExistsError(PipelineError):
    """A start was asked for, and the pipeline has started long ago."""

    def __init__(self, start: str, reason: str) -> None:
        super().__init__(
            f"--from {start} is for a pipeline that has not started yet, and {reason}; "
            "to read again give an empty directory with --checkpoint, and mind that its rows are added to those there"
        )


class UnparsedRowError(PipelineError):
    """A record that is not what its source says. Spark raises it, by this class's name."""


class QueryFailedError(PipelineError):
    """A streaming query ended with an error. `details` is all that Spark says of it."""

    def __init__(self, query: str, sentence: str, details: str) -> None:
        super().__init__(f"query {query!r} failed: {sentence}")
        self.details = details


class NoSparkError(PipelineError):
    """PySpark is not installed, or does not start."""


def exit_code_of(error: SparkError) -> int:
    match error:
        case QueryFailedError():
            return FAILED
        case TopicMissingError() | UnreachableError():
            return UNREACHABLE
        case NoSparkError() | JavaError():
            return NO_SPARK
    return WRONG
