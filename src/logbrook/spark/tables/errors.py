"""What goes wrong between a frame and a table, each in one sentence that names the table."""

from logbrook.spark.errors import SparkError


class TableError(SparkError):
    """A table that cannot be written, read or tidied as asked."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(f"table {table!r}: {reason}")
        self.table = table
        self.reason = reason


class SchemaMismatchError(TableError):
    """A column of a frame that does not fit the table's of that name; a type is None where there is no column."""

    def __init__(self, table: str, column: str, frame_type: str | None, table_type: str | None, hint: str = "") -> None:
        frame_side = f"is {frame_type} in the frame" if frame_type else "is not in the frame"
        table_side = f"is {table_type} in the table" if table_type else "is not in the table"
        super().__init__(table, f"column {column!r} {frame_side} and {table_side}{hint}")
        self.column = column
        self.frame_type = frame_type
        self.table_type = table_type


class CommitConflictError(TableError):
    """Another commit came first: load the table again and look whether the change still makes sense."""

    def __init__(self, table: str) -> None:
        super().__init__(table, "another commit came first")
