"""Planning on the driver: resolve topics, partitions and offsets of a query with the cluster."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from logbrook.client import EARLIEST, LATEST, BrokerError, Client, ClientError, RetryPolicy
from logbrook.client.partition_requests import PartitionRequests, TopicMetadata
from logbrook.model import TopicPartition
from logbrook.pipelines.report import REPORTS_TOPIC
from logbrook.protocol.error_classes import UNKNOWN_TOPIC
from logbrook.protocol.errors import ProtocolError
from logbrook.spark.contacts import has_answered, record_answer
from logbrook.spark.errors import DataLossError, MissingTopicError, OptionError, UnreachableError
from logbrook.spark.offset_ranges import OffsetRange, Offsets
from logbrook.spark.outages import CONNECT_TIMEOUT_S
from logbrook.spark.read_options import ConnectionOptions, OffsetSpec, ReadOptions

T = TypeVar("T")

_COMMIT_TIMEOUT_S = 3.0


class DataLossWarning(UserWarning):
    """Offsets that a query had to read no longer exist, and `failOnDataLoss` is false."""


def connect(options: ConnectionOptions) -> Client:
    """Create a client; nothing is sent yet. Raises OptionError for servers that are not HOST:PORT."""
    try:
        return Client(
            options.bootstrap_servers,
            client_id=options.client_id,
            timeout_s=options.timeout_s,
            connect_timeout_s=options.connect_timeout_s or min(CONNECT_TIMEOUT_S, options.timeout_s),
            security=options.security,
        )
    except ValueError as error:
        raise OptionError("kafka.bootstrap.servers", str(error)) from None


def report_data_loss(options: ReadOptions, loss: str) -> None:
    """Raise DataLossError, or warn if `failOnDataLoss` is false."""
    if options.fail_on_data_loss:
        raise DataLossError(loss)
    warnings.warn(loss, DataLossWarning, stacklevel=2)


def _is_internal(name: str, metadata: TopicMetadata) -> bool:
    """Return True for internal topics and pipeline reports: a pipeline reading its own reports would never be idle."""
    return metadata.is_internal or name == REPORTS_TOPIC


class Planner:
    """Resolves what a query reads, with one connection of its own. Every call may raise SparkError."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._cluster = PartitionRequests(connect(options.cluster))

    def close(self) -> None:
        self._cluster.client.close()

    def topics(self, *, allow_missing: bool = False) -> dict[str, TopicMetadata]:
        """Return the subscribed topics by name. Raises MissingTopicError for a missing one unless `allow_missing`."""
        subscription, servers = self.options.subscription, self.options.cluster.bootstrap_servers
        topics = self._ask(lambda: self._cluster.topics(subscription.names))
        if subscription.names is None:
            matching = {
                name: metadata
                for name, metadata in topics.items()
                if subscription.matches(name) and not _is_internal(name, metadata)
            }
            if not matching and not allow_missing:
                raise MissingTopicError(f"topic like {subscription.pattern!r}", servers)
            return matching
        for name in subscription.names:
            if name not in topics:
                if allow_missing:
                    continue
                raise MissingTopicError(f"topic {name!r}", servers)
            for partition in (subscription.assigned or {}).get(name, ()):
                if partition not in topics[name].partitions:
                    raise OptionError("assign", f"topic {name!r} has no partition {partition}")
        return topics

    def partitions(self, topics: Mapping[str, TopicMetadata]) -> list[TopicPartition]:
        """Return the subscribed partitions of `topics`."""
        partitions_of = self.options.subscription.partitions_of
        return [
            TopicPartition(name, partition)
            for name, metadata in topics.items()
            for partition in partitions_of(name, metadata.partitions)
        ]

    def ranges(self) -> list[OffsetRange]:
        """Return the offsets to read of each subscribed partition, as the options give them."""
        topics = self.topics()
        partitions = self.partitions(topics)
        starting, ending = self.starting(partitions), self.ending(partitions)
        self._check_order(starting, ending)
        return [
            OffsetRange(partition, starting[partition], ending[partition], topics[partition.topic].id)
            for partition in partitions
        ]

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self.offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self.offsets(dict.fromkeys(partitions, LATEST))

    def starting(self, partitions: list[TopicPartition]) -> Offsets:
        """Return the starting offsets. Raises OptionError if a partition has no record at or after the given time."""
        spec = self.options.starting
        offsets = self._resolve(spec, partitions)
        missing = [partition for partition, offset in offsets.items() if offset < 0]
        if missing and self.options.fail_on_missing_timestamp:
            names = ", ".join(map(str, missing))
            reason = f"there is no record at or after that time in {names}; startingOffsetsByTimestampStrategy may be"
            raise OptionError(spec.option, f"{reason} set to 'latest'")
        return offsets | self.latest(missing)

    def ending(self, partitions: list[TopicPartition]) -> Offsets:
        """Return the exclusive ending offsets; the log end offset where no record is at or after the given time."""
        offsets = self._resolve(self.options.ending, partitions)
        return offsets | self.latest([partition for partition, offset in offsets.items() if offset < 0])

    def offsets(self, timestamps: Mapping[TopicPartition, int]) -> Offsets:
        """Return the first offset at or after each timestamp in ms (or EARLIEST, LATEST); -1 where there is none."""
        if not timestamps:
            return {}
        committed_only = self.options.is_committed_only
        offsets = self._ask(lambda: self._cluster.list_offsets(timestamps, committed_only=committed_only))
        # The leaders have answered, so the addresses that the brokers advertise are right as well.
        record_answer(self.options.cluster.bootstrap_servers)
        return {**offsets}

    def sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log sizes in bytes."""
        return self._ask(lambda: self._cluster.sizes(partitions))

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a group without members. Raises ClientError or ProtocolError after a few seconds."""
        RetryPolicy(timeout_s=_COMMIT_TIMEOUT_S).run(lambda: self._cluster.coordinators.commit(group_id, offsets))

    def _check_order(self, starting: Offsets, ending: Offsets) -> None:
        """Raise OptionError if a given offset is after the end that a timestamp stands for: it would read nothing."""
        given, end = self.options.starting, self.options.ending
        is_by_time = end.timestamps_ms is not None or (end.timestamp_ms is not None and end.timestamp_ms >= 0)
        for partition in (given.offsets or {}) if is_by_time else ():
            if starting[partition] > ending[partition]:
                raise OptionError(
                    given.option,
                    f"{starting[partition]} for {partition} is after {end.option}, which is offset "
                    f"{ending[partition]} there; it would read nothing",
                )

    def _resolve(self, spec: OffsetSpec, partitions: list[TopicPartition]) -> Offsets:
        """Return the offsets that `spec` stands for; -1 where no record is at or after its timestamp."""
        if spec.timestamp_ms is not None:
            return self.offsets(dict.fromkeys(partitions, spec.timestamp_ms))
        by_partition = spec.by_partition or {}
        if set(by_partition) != set(partitions):
            wrong = ", ".join(sorted(map(str, set(by_partition) ^ set(partitions))))
            raise OptionError(spec.option, f"it must name every partition that is read and no other; see {wrong}")
        if spec.timestamps_ms is not None:
            return self.offsets(spec.timestamps_ms)
        earliest_or_latest = {partition: offset for partition, offset in by_partition.items() if offset < 0}
        return dict(by_partition) | self.offsets(earliest_or_latest)

    def _ask(self, request: Callable[[], T]) -> T:
        """Return the result of `request`, retried as the options say. Raises MissingTopicError or UnreachableError."""
        options = self.options.cluster
        policy = options.retry if has_answered(options.bootstrap_servers) else options.start_retry
        try:
            return replace(policy, final=UNKNOWN_TOPIC).run(request)
        except (ClientError, ProtocolError) as error:
            if isinstance(error, BrokerError) and error.code in UNKNOWN_TOPIC:
                raise MissingTopicError(error.operation.rpartition(" ")[2], options.bootstrap_servers) from error
            raise UnreachableError(options.bootstrap_servers, str(error)) from error
