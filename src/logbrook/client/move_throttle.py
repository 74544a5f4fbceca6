"""A limit of the bytes per second that moves copy, by Kafka's four settings (KIP-73).

    leader.replication.throttled.replicas     of a topic: the replicas that are copied from, as PARTITION:BROKER
    follower.replication.throttled.replicas   of a topic: the replicas that are added
    leader.replication.throttled.rate         of a broker: bytes per second that it sends to throttled replicas
    follower.replication.throttled.rate       of a broker: bytes per second that it fetches as one

Replicas that are in sync are never limited.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from logbrook.client.admin_configs import ConfigAdmin
from logbrook.client.admin_results import SettingSource
from logbrook.client.errors import BrokerError, ClientError
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId
from logbrook.protocol.error_codes import ErrorCode

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"

_ALL = "*"


class MoveThrottle:
    """The limit for the moves of one plan, in force from `begin` to `end`."""

    def __init__(
        self,
        configs: ConfigAdmin,
        before: Mapping[TopicPartition, Sequence[BrokerId]],
        plan: Mapping[TopicPartition, Sequence[BrokerId]],
    ) -> None:
        """`before` has the replicas of the partitions in `plan` from before the move."""
        self._configs = configs
        # The listed replicas by topic and setting.
        self._listed: dict[str, dict[str, list[str]]] = {}
        brokers: set[BrokerId] = set()
        for partition, target in plan.items():
            added = [replica for replica in target if replica not in before[partition]]
            listed = self._listed.setdefault(partition.topic, {LEADER_REPLICAS: [], FOLLOWER_REPLICAS: []})
            if added:
                listed[LEADER_REPLICAS] += _entries(partition, before[partition])
                listed[FOLLOWER_REPLICAS] += _entries(partition, added)
                brokers |= {*before[partition], *added}
        self._brokers = sorted(brokers)

    def begin(self, bytes_per_s: int, live: Collection[BrokerId]) -> None:
        """Set the limit on the live ones of the brokers that take part. Replicas that are listed already stay so."""
        for topic, listed in self._listed.items():
            current = self._current(topic)
            values = {
                name: ",".join(dict.fromkeys([*current[name], *entries]))
                for name, entries in listed.items()
                if entries and _ALL not in current[name]
            }
            if values:
                self._configs.alter_topic(topic, values)
        rates = {LEADER_RATE: str(bytes_per_s), FOLLOWER_RATE: str(bytes_per_s)}
        self._brokers = [broker for broker in self._brokers if broker in live]
        for broker in self._brokers:
            self._configs.alter_broker(broker, rates)

    def end(self, *, keep_rates: bool = False) -> list[ClientError]:
        """Remove the settings, and return what failed. Other replicas stay listed.

        With `keep_rates` those of the brokers stay, for other moves; without listed replicas they have no effect.
        """
        errors: list[ClientError] = []
        for topic, listed in self._listed.items():
            with _collected(errors):
                self._unlist(topic, listed)
        for broker in () if keep_rates else self._brokers:
            with _collected(errors):
                self._configs.alter_broker(broker, {}, unset=(LEADER_RATE, FOLLOWER_RATE))
        return errors

    def _unlist(self, topic: str, listed: Mapping[str, Collection[str]]) -> None:
        try:
            current = self._current(topic)
        except BrokerError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return
            raise
        values: dict[str, str] = {}
        unset: list[str] = []
        for name, entries in listed.items():
            remaining = [entry for entry in current[name] if entry not in entries]
            if remaining == current[name]:
                continue
            if remaining:
                values[name] = ",".join(remaining)
            else:
                unset.append(name)
        if values or unset:
            self._configs.alter_topic(topic, values, unset)

    def _current(self, topic: str) -> dict[str, list[str]]:
        """Return the replicas that the topic lists itself."""
        current: dict[str, list[str]] = {LEADER_REPLICAS: [], FOLLOWER_REPLICAS: []}
        for setting in self._configs.of_topic(topic):
            if setting.name in current and setting.source is SettingSource.TOPIC and setting.value:
                current[setting.name] = setting.value.split(",")
        return current


def _entries(partition: TopicPartition, replicas: Iterable[BrokerId]) -> list[str]:
    return [f"{partition.partition}:{replica}" for replica in replicas]


@contextmanager
def _collected(errors: list[ClientError]) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        errors.append(error)
