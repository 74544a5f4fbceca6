"""The admin client of kafka-python. Some of its calls return error texts where others raise exceptions."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.interop.clients.interface import Admin, GroupState, ProducerState, RefusedError, TransactionState
from tests.interop.clients.kafka_python_settings import QUICK, code_in, kafka, refusals


class KafkaPythonAdmin(Admin):
    def __init__(self, servers: str) -> None:
        self._admin = kafka.KafkaAdminClient(**QUICK, bootstrap_servers=servers)

    def close(self) -> None:
        self._admin.close()

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        with refusals():
            self._admin.create_topics(
                {name: {"num_partitions": partitions, "replication_factor": 1, "configs": dict(settings)}}
            )

    def delete_topic(self, name: str) -> None:
        with refusals():
            self._admin.delete_topics([name])

    def topics(self) -> dict[str, int]:
        return {topic["name"]: len(topic["partitions"]) for topic in self._admin.describe_topics()}

    def create_partitions(self, topic: str, count: int) -> None:
        with refusals():
            self._admin.create_partitions({topic: count})

    def configs(self, topic: str) -> dict[str, str]:
        return self._describe("topic", topic)

    def broker_configs(self) -> dict[str, str]:
        return self._describe("broker", "1")

    def alter_configs(self, topic: str, settings: Mapping[str, str]) -> None:
        self._alter(topic, settings, is_incremental=False)

    def alter_configs_incrementally(self, topic: str, settings: Mapping[str, str | None]) -> None:
        changes = {name: ("DELETE" if value is None else "SET", value) for name, value in settings.items()}
        self._alter(topic, changes, is_incremental=True)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = kafka.TopicPartition(topic, partition)
        with refusals():
            low_watermark: int = self._admin.delete_records({place: before})[place]["low_watermark"]
        return low_watermark

    def groups(self) -> set[str]:
        return {group["group_id"] for group in self._admin.list_groups()}

    def describe_group(self, group: str) -> GroupState:
        description = self._admin.describe_groups([group])[group]
        _check(description["error"])
        return GroupState(description["group_state"].lower(), len(description["members"]))

    def delete_group(self, group: str) -> None:
        outcome = self._admin.delete_groups([group])[group]
        if outcome != "OK":
            raise RefusedError(getattr(kafka.errors, outcome).errno, outcome)

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        with refusals():
            offsets = self._admin.list_group_offsets(group)[group]
        return {place.partition: committed.offset for place, committed in offsets.items() if place.topic == topic}

    def alter_group_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        wanted = {
            kafka.TopicPartition(topic, number): kafka.structs.OffsetAndMetadata(offset, "", None)
            for number, offset in offsets.items()
        }
        with refusals():
            _check_each(self._admin.alter_group_offsets(group, wanted))

    def delete_group_offsets(self, group: str, topic: str, partitions: Sequence[int]) -> None:
        with refusals():
            _check_each(
                self._admin.delete_group_offsets(group, [kafka.TopicPartition(topic, number) for number in partitions])
            )

    def brokers(self) -> dict[int, str]:
        return {
            broker["broker_id"]: f"{broker['host']}:{broker['port']}"
            for broker in self._admin.describe_cluster()["brokers"]
        }

    def log_sizes(self, topic: str) -> dict[int, int]:
        return {
            partition["partition_index"]: partition["partition_size"]
            for broker in self._admin.describe_log_dirs([topic])
            for directory in broker["log_dirs"]
            for topic_sizes in directory["topics"]
            for partition in topic_sizes["partitions"]
        }

    def earliest_latest_newest(self, topic: str, partition: int) -> tuple[int, int, int]:
        place = kafka.TopicPartition(topic, partition)
        specs = kafka.admin.OffsetSpec
        first, following, newest = (
            self._admin.list_partition_offsets({place: spec})[place].offset
            for spec in (specs.EARLIEST, specs.LATEST, specs.MAX_TIMESTAMP)
        )
        return first, following, newest

    def transactions(self) -> dict[str, str]:
        return {
            transaction.transactional_id: transaction.state.value
            for listed in self._admin.list_transactions().values()
            for transaction in listed
        }

    def describe_transaction(self, transactional_id: str) -> TransactionState:
        with refusals():
            description = self._admin.describe_transactions([transactional_id])[transactional_id]
        partitions = frozenset((place.topic, place.partition) for place in description.topic_partitions)
        return TransactionState(description.state.value, description.producer_id, partitions)

    def producers(self, topic: str, partition: int) -> list[ProducerState]:
        place = kafka.TopicPartition(topic, partition)
        with refusals():
            description = self._admin.describe_producers([place])[place]
        return [
            ProducerState(producer.producer_id, producer.current_transaction_start_offset)
            for producer in description.active_producers
        ]

    def _describe(self, kind: str, name: str) -> dict[str, str]:
        wanted = kafka.admin.ConfigResource(kind, name)
        configs = self._admin.describe_configs([wanted], config_filter="all")[kind][name]
        return {key: entry["value"] for key, entry in configs.items()}

    def _alter(self, topic: str, settings: Mapping[str, Any], *, is_incremental: bool) -> None:
        wanted = kafka.admin.ConfigResource("topic", topic, dict(settings))
        # Settings that it does not know are left to the broker to refuse.
        outcome = self._admin.alter_configs([wanted], raise_on_unknown=False, incremental=is_incremental)
        _check(outcome["topic"][topic])


def _check(outcome: str | None) -> None:
    """Raises RefusedError."""
    code = code_in(outcome)
    if code is not None:
        raise RefusedError(code, outcome or "")


def _check_each(outcomes: Mapping[Any, Any]) -> None:
    for place, kind in outcomes.items():
        if kind.errno:
            raise RefusedError(kind.errno, f"{place}: {kind.__name__}")
