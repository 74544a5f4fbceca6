"""Errors of schemas and of the registry."""

from logbrook.spark.errors import SparkError


class InvalidSchemaError(SparkError):
    """A schema is malformed, or has no equivalent in Spark."""


class RegistryError(SparkError):
    """The schema registry refused the request, or gave no answer that makes sense."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"the schema registry at {url}: {reason}")


class UnreachableRegistryError(RegistryError):
    """The schema registry did not answer, or only with errors of its own, whatever the request."""


class UnknownSchemaError(RegistryError):
    """The schema registry has no such schema, subject or version."""


class IncompatibleSchemaError(SparkError):
    """Values of the writer's schema cannot be read with the reader's schema."""
