"""Orders from a topic into tables: each run takes what has come since the last one."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()
SCHEMA = "id BIGINT, amount DOUBLE, at TIMESTAMP"


@dp.table
def orders() -> DataFrame:
    """Every order, as it came."""
    records = (
        spark.readStream.format("logbrook")
        .option("kafka.bootstrap.servers", spark.conf.get("spark.orders.bootstrap.servers"))
        .option("subscribe", spark.conf.get("spark.orders.topic"))
        .option("startingOffsets", "earliest")
        .load()
    )
    order = f.from_json(f.col("value").cast("string"), SCHEMA)
    return records.select(order.alias("order"), "partition", "offset").select("order.*", "partition", "offset")


@dp.materialized_view
def totals() -> DataFrame:
    """The sum of each minute."""
    minute = f.date_trunc("minute", "at").alias("minute")
    return spark.read.table("orders").groupBy(minute).agg(f.count("*").alias("orders"), f.sum("amount").alias("total"))
