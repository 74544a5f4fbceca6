"""The records of a topic as rows with columns, and what becomes of those that are not what their source says.

Spark's from_json is lenient in ways that lose data, so it is asked in a way that leaves it no choice:

- It reads one value and ignores what follows, such as a second object in the same record. So the text is wrapped as
  `{"row": text, "end": 1}`, and without the end a record does not parse.
- Of an empty text it makes a null, and says nothing. Wrapped, that is malformed like everything else.
- A field that does not fit its type becomes null, and only the column of corrupt records tells.

The check stands inside a generator, between records and rows. As a filter it would be merged with those of the queries
above, which may drop a record before it is looked at, and would have each record parsed two or three times.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from logbrook.spark.pipeline.errors import UnparsedRowError
from logbrook.spark.pipeline.spec import RowFormat

ROW_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
META_COLUMNS = {"_key": "key", "_topic": "topic", "_partition": "partition", "_offset": "offset"}
META_COLUMNS |= {"_timestamp": "timestamp"}
# In two parts, so that a query's plan, which many an error shows, does not look like the error itself.
_ERROR_NAME = (f"{UnparsedRowError.__module__}.", f"{UnparsedRowError.__name__}: ")


class RowParser:
    """Turns records into rows of one format; `schema` is that of the JSON, and is None for other formats."""

    def __init__(self, row_format: RowFormat, schema: StructType | None) -> None:
        self._format = row_format
        self._schema = schema
        # A name that no field of the schema has.
        self._corrupt = "_corrupt"
        while schema is not None and self._corrupt in schema.names:
            self._corrupt += "_"

    @property
    def can_fail(self) -> bool:
        """Bytes are never wrong."""
        return self._format is not RowFormat.BYTES

    def rows(self, records: DataFrame, *, drops_unparsed: bool) -> DataFrame:
        """The columns of the rows and of `META_COLUMNS`. A record that does not parse is dropped, or ends the query."""
        metadata = [f.col(column).alias(name) for name, column in META_COLUMNS.items()]
        if not self.can_fail:
            return records.select("value", *metadata)
        parsed = self._parsed(lambda row: self._is_good(row) if drops_unparsed else self._good_or_error(row))
        rows = records.select(parsed.alias("_row"), *metadata)
        columns = [f.col("_row.row").alias("value")]
        if self._schema is not None:
            columns = [f.col("_row.row").getField(name).alias(name) for name in self._schema.names]
        return rows.select(*columns, *META_COLUMNS)

    def dead_letters(self, records: DataFrame) -> DataFrame:
        """The records that do not parse, as records whose last headers say why, and from where they are."""
        bad = records.select("*", self._parsed(lambda row: ~self._is_good(row)).alias("_row"))
        told = {
            "error": self._reason(f.col("_row")),
            "topic": f.col("topic"),
            "partition": f.col("partition").cast("string"),
            "offset": f.col("offset").cast("string"),
        }
        headers = [f.struct(f.lit(key).alias("key"), text.cast("binary").alias("value")) for key, text in told.items()]
        there = f.coalesce(f.col("headers"), f.array().cast("array<struct<key:string,value:binary>>"))
        return bad.select("key", "value", f.concat(there, f.array(*headers)).alias("headers"))

    def _parsed(self, keeps: Callable[[Column], Column]) -> Column:
        return f.explode(f.filter(f.array(self._row()), keeps))

    def _row(self) -> Column:
        text = f.col("value").cast("string")
        if self._schema is None:
            return f.struct(text.alias("row"), f.is_valid_utf8(text).alias("is_text"))
        schema = StructType().add("row", self._schema).add("end", IntegerType()).add(self._corrupt, StringType())
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": self._corrupt}
        return f.from_json(f.concat(f.lit('{"row":'), text, f.lit(',"end":1}')), schema, options)

    def _is_good(self, row: Column) -> Column:
        if self._schema is None:
            # A null is a tombstone, and no text that could be wrong.
            return f.coalesce(row.getField("is_text"), f.lit(True))
        is_whole = row.getField("row").isNotNull() & row.getField("end").isNotNull()
        return is_whole & row.getField(self._corrupt).isNull()

    def _good_or_error(self, row: Column) -> Column:
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
        return f.when(self._is_good(row), f.lit(True)).otherwise(f.raise_error(sentence).cast("boolean"))

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


def records_of(spark: SparkSession, options: dict[str, str], *, with_headers: bool = False) -> DataFrame:
    """A stream of a topic's records."""
    columns = (*ROW_COLUMNS, "headers") if with_headers else ROW_COLUMNS
    return spark.readStream.format("logbrook").options(**options).option("columns", ",".join(columns)).load()


def as_key(frame: DataFrame, column: str) -> Column:
    """A column as the key of a record."""
    is_ready = isinstance(frame.schema[column].dataType, BinaryType | StringType)
    return f.col(column) if is_ready else f.col(column).cast("string")
