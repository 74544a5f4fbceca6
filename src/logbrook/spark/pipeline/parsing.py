"""Parsing of records into rows, and handling of records that do not parse: fail the query, or dead letters.

Spark's from_json is lenient in ways that lose data. The workarounds:

- It reads one value and ignores what follows, such as a second object in the same record. The text is wrapped as
  `{"row": text, "end": 1}`; a record without the end does not parse.
- It turns an empty text into null without an error. Wrapped, that is malformed JSON.
- A field that does not fit its type becomes null without an error; the corrupt-record column is checked.

Values with a schema in a registry are decoded by the reader (`spark.schemas`), which gives the reason beside the value.

The check is inside a generator (explode) between records and rows. As a filter, Spark would merge it with the filters
of the queries above, which may drop a record before the check, and would parse each record two or three times.
"""

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from logbrook.spark.errors import UnparsedRowError
from logbrook.spark.headers import headers_or_empty
from logbrook.spark.pipeline.spec import RowFormat

ROW_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
META_COLUMNS = {"_key": "key", "_topic": "topic", "_partition": "partition", "_offset": "offset"}
META_COLUMNS |= {"_timestamp": "timestamp"}
# Two literals, so that the query plan, which many error messages quote, does not match as the error itself.
_ERROR_NAME = (f"{UnparsedRowError.__module__}.", f"{UnparsedRowError.__name__}: ")


class RowParser:
    """Parses records of one format. `schema` is that of JSON values, None for other formats.

    With `keeps_tombstones` a record without a value is a row in which only `META_COLUMNS` are not null.
    """

    def __init__(self, row_format: RowFormat, schema: StructType | None, *, keeps_tombstones: bool = False) -> None:
        self._format = row_format
        self._schema = schema
        self._keeps_tombstones = keeps_tombstones
        # A name that is not in the schema.
        self._corrupt = "_corrupt"
        while schema is not None and self._corrupt in schema.names:
            self._corrupt += "_"

    @property
    def can_fail(self) -> bool:
        """False for bytes, which need no parsing."""
        return self._format is not RowFormat.BYTES

    def records(self, spark: SparkSession, options: dict[str, str], *, for_dead_letters: bool = False) -> DataFrame:
        """Return the stream of a source's records, with the columns that `rows` or `dead_letters` need."""
        columns = (*ROW_COLUMNS, "headers") if for_dead_letters else ROW_COLUMNS
        return _read(spark, options, columns)

    def rows(self, records: DataFrame, *, drops_unparsed: bool) -> DataFrame:
        """Return rows with `META_COLUMNS`. A record that does not parse is dropped or fails the query."""
        metadata = [f.col(column).alias(name) for name, column in META_COLUMNS.items()]
        if not self.can_fail:
            return records.select("value", *metadata)
        keeps = self._is_kept if drops_unparsed else self._kept_or_error
        parsed = self._parsed("value", keeps)
        rows = records.select(parsed.alias("_row"), *metadata)
        names = self._names(records)
        columns = [f.col("_row.row").alias("value")]
        if names is not None:
            columns = [f.col("_row.row").getField(name).alias(name) for name in names]
        return rows.select(*columns, *META_COLUMNS)

    def dead_letters(self, records: DataFrame) -> DataFrame:
        """Return the records that do not parse, with headers appended for error, topic, partition and offset."""
        unparsed = records.select("*", self._parsed(self._bytes_column, lambda row: ~self._is_kept(row)).alias("_row"))
        added = {
            "error": self._reason(f.col("_row")),
            "topic": f.col("topic"),
            "partition": f.col("partition").cast("string"),
            "offset": f.col("offset").cast("string"),
        }
        headers = [f.struct(f.lit(key).alias("key"), text.cast("binary").alias("value")) for key, text in added.items()]
        existing = headers_or_empty()
        value = f.col(self._bytes_column).alias("value")
        return unparsed.select("key", value, f.concat(existing, f.array(*headers)).alias("headers"))

    def _names(self, records: DataFrame) -> list[str] | None:  # noqa: ARG002
        """Return the fields of a row; None if it is a single value."""
        return None if self._schema is None else self._schema.names

    @property
    def _bytes_column(self) -> str:
        """The column with the value as it is in the record."""
        return "value"

    def _parsed(self, column: str, keeps: Callable[[Column], Column]) -> Column:
        return f.explode(f.filter(f.array(self._row(column)), keeps))

    def _row(self, column: str) -> Column:
        text = f.col(column).cast("string")
        if self._schema is None:
            return f.struct(text.alias("row"), f.is_valid_utf8(text).alias("is_text"))
        schema = StructType().add("row", self._schema).add("end", IntegerType()).add(self._corrupt, StringType())
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": self._corrupt}
        return f.from_json(f.concat(f.lit('{"row":'), text, f.lit(',"end":1}')), schema, options)

    def _is_kept(self, row: Column) -> Column:
        is_parsed = self._is_parsed(row)
        return is_parsed | self._is_tombstone(row) if self._keeps_tombstones else is_parsed

    def _is_tombstone(self, row: Column) -> Column:  # noqa: ARG002
        return f.col("value").isNull()

    def _is_parsed(self, row: Column) -> Column:
        if self._schema is None:
            # Null is a tombstone and valid.
            return f.coalesce(row.getField("is_text"), f.lit(True))
        is_whole = row.getField("row").isNotNull() & row.getField("end").isNotNull()
        return is_whole & row.getField(self._corrupt).isNull()

    def _kept_or_error(self, row: Column) -> Column:
        record = f.concat(f.col("topic"), f.lit("-"), f.col("partition"))
        sentence = f.concat(
            *map(f.lit, _ERROR_NAME),
            f.lit("the record at offset "),
            f.col("offset"),
            f.lit(" of "),
            record,
            f.lit(" does not parse: "),
            self._reason(row),
            f.lit("; with [dead_letters] in the file such records go to a topic instead"),
        )
        return f.when(self._is_kept(row), f.lit(True)).otherwise(f.raise_error(sentence).cast("boolean"))

    def _reason(self, row: Column) -> Column:
        text = f.col("value").cast("string")
        if self._schema is None:
            return f.lit("the value is not UTF-8")
        fields = []
        for field in self._schema.fields:
            is_given = f.get_json_object(text, f"$['{field.name}']").isNotNull()
            is_lost = is_given & row.getField("row").getField(field.name).isNull()
            fields.append(f.when(is_lost, f.lit(f"{field.name} is not {field.dataType.simpleString()}")))
        misfits = f.concat_ws(", ", *fields)
        is_object = f.trim(text, f.lit(" \t\r\n")).startswith("{")
        return (
            f.when(text.isNull(), "the value is null")
            .when(f.try_parse_json(f.concat(f.lit("["), text, f.lit("]"))).isNull(), "the value is not JSON")
            .when(~is_object, "the value is not a JSON object")
            .when(misfits != "", misfits)
            .otherwise("the value does not fit the schema")
        )


class RegisteredRowParser(RowParser):
    """Takes the values that the reader has decoded with schemas of a registry."""

    def __init__(self, row_format: RowFormat, *, keeps_tombstones: bool = False) -> None:
        super().__init__(row_format, None, keeps_tombstones=keeps_tombstones)

    def records(self, spark: SparkSession, options: dict[str, str], *, for_dead_letters: bool = False) -> DataFrame:
        columns: tuple[str, ...] = (*ROW_COLUMNS, "valueError")
        if for_dead_letters:
            # The decoded value is not needed, only the reason if there is none.
            columns = (*(self._bytes_column if name == "value" else name for name in columns), "headers")
        return _read(spark, options, columns)

    def _names(self, records: DataFrame) -> list[str] | None:
        type_ = records.schema["value"].dataType
        if not isinstance(type_, StructType):
            return None
        taken = [name for name in type_.names if name.lower() in META_COLUMNS]
        if taken:
            raise ValueError(f"the schema has {', '.join(taken)}, which every source has already")
        return list(type_.names)

    @property
    def _bytes_column(self) -> str:
        return "valueBytes"

    def _row(self, column: str) -> Column:
        return f.struct(f.col(column).alias("row"), f.col("valueError").alias("error"))

    def _is_tombstone(self, row: Column) -> Column:
        return row.getField("row").isNull() & row.getField("error").isNull()

    def _is_parsed(self, row: Column) -> Column:
        return row.getField("row").isNotNull() & row.getField("error").isNull()

    def _reason(self, row: Column) -> Column:
        return f.coalesce(row.getField("error"), f.lit("the value is null"))


def _read(spark: SparkSession, options: dict[str, str], columns: Sequence[str]) -> DataFrame:
    return spark.readStream.format("logbrook").options(**options).option("columns", ",".join(columns)).load()


def as_key(frame: DataFrame, column: str) -> Column:
    """Return a column as a record key: strings and bytes as they are, others cast to string."""
    is_key_type = isinstance(frame.schema[column].dataType, BinaryType | StringType)
    return f.col(column) if is_key_type else f.col(column).cast("string")
