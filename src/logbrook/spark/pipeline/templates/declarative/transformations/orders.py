"""Orders from a topic into tables; each run processes the records since the last run."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()
SCHEMA = "id BIGINT, amount DOUBLE, at TIMESTAMP"


@dp.table
def orders() -> DataFrame:
    """Every order, with its partition and offset."""
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
    """Number and total of orders per minute."""
    minute = f.date_trunc("minute", "at").alias("minute")
    return spark.read.table("orders").groupBy(minute).agg(f.count("*").alias("orders"), f.sum("amount").alias("total"))
