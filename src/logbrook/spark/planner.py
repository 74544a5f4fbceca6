"""What a query reads, decided on the driver: which partitions there are, and from which offset to which."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from threading import Event
from typing import TypeVar

from logbrook.client import EARLIEST, LATEST, BrokerError, Client, ClientError, ConnectFailedError
from logbrook.client.cluster import Cluster, TopicInfo, retriable
from logbrook.model import TopicPartition
from logbrook.pipelines.report import REPORTS_TOPIC
from logbrook.protocol.errors import ProtocolError
from logbrook.spark.errors import DataLossError, OptionError, TopicMissingError, UnreachableError
from logbrook.spark.positions import Position
from logbrook.spark.read_options import ClusterOptions, ReadOptions

T = TypeVar("T")
Offsets = dict[TopicPartition, int]


class DataLossWarning(UserWarning):
    """Records are gone that a query was to read, and it was told not to mind."""


def connect(options: ClusterOptions) -> Client:
    """Raises OptionError for servers that are not HOST:PORT."""
    try:
        return Client(options.bootstrap_servers, client_id=options.client_id, timeout_s=options.timeout_s)
    except ValueError as error:
        raise OptionError("kafka.bootstrap.servers", str(error)) from None


def _is_own(name: str, info: TopicInfo) -> bool:
    """Whether it is no topic of users: a pipeline that reads what pipelines say of themselves would never rest."""
    return info.is_internal or name == REPORTS_TOPIC


class Planner:
    """Asks the cluster. Every call may raise SparkError."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._cluster = Cluster(connect(options.cluster))

    def close(self) -> None:
        self._cluster.client.close()

    def topics(self, *, may_lack: bool = False) -> dict[str, TopicInfo]:
        """The topics that the query reads, by name. Raises TopicMissingError, unless it `may_lack` some."""
        subscription, servers = self.options.subscription, self.options.cluster.bootstrap_servers
        found = self._ask(lambda: self._cluster.topics(subscription.names))
        if subscription.names is None:
            found = {name: info for name, info in found.items() if subscription.fits(name) and not _is_own(name, info)}
            if not found and not may_lack:
                raise TopicMissingError(f"topic like {subscription.pattern!r}", servers)
            return found
        for name in subscription.names:
            if name not in found:
                if may_lack:
                    continue
                raise TopicMissingError(f"topic {name!r}", servers)
            for partition in (subscription.assigned or {}).get(name, ()):
                if partition not in found[name].partitions:
                    raise OptionError("assign", f"topic {name!r} has no partition {partition}")
        return found

    def partitions(self, topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
        choose = self.options.subscription.choose
        return [TopicPartition(name, one) for name, info in topics.items() for one in choose(name, info.partitions)]

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self.offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self.offsets(dict.fromkeys(partitions, LATEST))

    def starting(self, partitions: list[TopicPartition]) -> Offsets:
        """Where the query starts. Raises OptionError when no record is as late as the time that was given."""
        position = self.options.starting
        found = self._at(position, partitions)
        missing = [partition for partition, offset in found.items() if offset < 0]
        if missing and self.options.fails_without_time:
            names = ", ".join(map(str, missing))
            reason = f"there is no record at or after that time in {names}; startingOffsetsByTimestampStrategy may be"
            raise OptionError(position.option, f"{reason} set to 'latest'")
        return found | self.latest(missing)

    def ending(self, partitions: list[TopicPartition]) -> Offsets:
        """Where a batch ends: past the last record, where no record is as late as the time that was given."""
        found = self._at(self.options.ending, partitions)
        return found | self.latest([partition for partition, offset in found.items() if offset < 0])

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        """The offsets at these times, or EARLIEST or LATEST; -1 where no record is as late."""
        if not wanted:
            return {}
        committed_only = self.options.is_committed_only
        return self._ask(lambda: self._cluster.list_offsets(wanted, committed_only=committed_only))

    def sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._ask(lambda: self._cluster.sizes(partitions))

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._ask(lambda: self._cluster.commit(group_id, offsets))

    def lose(self, what: str) -> None:
        """Records are gone: raises DataLossError, or warns where the query was told not to mind."""
        if self.options.fail_on_data_loss:
            raise DataLossError(what)
        warnings.warn(what, DataLossWarning, stacklevel=2)

    def _at(self, position: Position, partitions: list[TopicPartition]) -> Offsets:
        if position.everywhere is not None:
            return self.offsets(dict.fromkeys(partitions, position.everywhere))
        named = position.named or {}
        if set(named) != set(partitions):
            wrong = ", ".join(sorted(str(one) for one in set(named) ^ set(partitions)))
            raise OptionError(position.option, f"it must name every partition that is read and no other; see {wrong}")
        if position.times is not None:
            return self.offsets(position.times)
        at_ends = {partition: offset for partition, offset in named.items() if offset < 0}
        return dict(named) | self.offsets(at_ends)

    def _ask(self, question: Callable[[], T]) -> T:
        """The answer, or after some attempts the one sentence that says why there is none."""
        options = self.options.cluster
        pause = Event()
        for attempt in range(options.retries + 1):
            try:
                return question()
            except ProtocolError as error:
                raise UnreachableError(options.bootstrap_servers, str(error)) from error
            except ClientError as error:
                if isinstance(error, BrokerError) and error.code.name == "UNKNOWN_TOPIC_OR_PARTITION":
                    raise TopicMissingError(error.what.rpartition(" ")[2], options.bootstrap_servers) from error
                # A leader that is gone may have a successor, and where that is has been forgotten by now.
                is_hopeless = (isinstance(error, ConnectFailedError) and attempt > 0) or not retriable(error)
                if attempt == options.retries or is_hopeless:
                    raise UnreachableError(options.bootstrap_servers, str(error)) from error
                pause.wait(options.retry_interval_ms / 1000)
        raise AssertionError("the last attempt returns or raises")
