"""The format `logbrook` with writers that stop at the end of their transactions as ordered; see `stops`."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.types import StructType

from logbrook.client import TransactionalProducer
from logbrook.protocol.messages.end_txn import EndTxnResponse
from logbrook.spark.source import LogbrookDataSource
from logbrook.spark.writer import TopicArrowWriter, TopicCommitMessage, TopicStreamArrowWriter
from logbrook.testing.exactly_once.stops import StopOrders, StopPoint


class StoppingProducer(TransactionalProducer):
    """Stops before and after the end of a transaction. The targets are its topics."""

    def _request_end(self, is_commit: bool) -> EndTxnResponse:
        orders, topics = StopOrders.of_process(), sorted({partition.topic for partition in self.partitions})
        for topic in topics:
            orders.wait_at(topic, StopPoint.BEFORE_COMMIT)
        answer = super()._request_end(is_commit)
        for topic in topics:
            orders.wait_at(topic, StopPoint.AFTER_COMMIT)
        return answer


class StoppingTopicWriter(TopicArrowWriter):
    """The writer of batch queries with a `StoppingProducer`."""

    def write(self, iterator: Iterator[Any]) -> TopicCommitMessage:
        _use_stopping_producer()
        return super().write(iterator)


class StoppingTopicStreamWriter(TopicStreamArrowWriter):
    """The writer of streaming queries with a `StoppingProducer`."""

    def write(self, iterator: Iterator[Any]) -> TopicCommitMessage:
        _use_stopping_producer()
        return super().write(iterator)


class StoppingTopics(LogbrookDataSource):
    """The data source that drivers of scenarios register instead of `LogbrookDataSource`."""

    def writer(self, schema: StructType, overwrite: bool) -> StoppingTopicWriter:
        return StoppingTopicWriter(super().writer(schema, overwrite).options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StoppingTopicStreamWriter:  # noqa: N802
        return StoppingTopicStreamWriter(super().streamWriter(schema, overwrite).options)


def _use_stopping_producer() -> None:
    from logbrook.spark import exactly_once  # noqa: PLC0415 - imported in tasks only, as the sink does

    exactly_once.PRODUCER = StoppingProducer
