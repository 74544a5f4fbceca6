"""Kinds of workload, with operation weights such that each part of the engine is the focus of one kind."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from logbrook.config import Durability
from logbrook.model import TopicPartition
from logbrook.testing.crash import client_operations as client
from logbrook.testing.crash import owner_operations as owner
from logbrook.testing.crash.life import Operation
from logbrook.testing.crash.settings import AUDIT, EVENTS, PARTITIONS, TABLE

Weights = Mapping[Operation, int]

_BASE: Weights = {
    client.append: 10,
    client.append_set: 2,
    client.retry: 1,
    owner.commit: 6,
    owner.create: 4,
    client.read: 1,
    owner.wait: 1,
}


@dataclass(frozen=True)
class WorkloadKind:
    """The operations of a workload by weight, its partitions, and how its processes end."""

    name: str
    weights: Weights
    durabilities: tuple[Durability, ...] = (Durability.FSYNC,)
    operations: int = 30
    partitions: tuple[TopicPartition, ...] = PARTITIONS
    past_appends: int = 0
    past_operations: tuple[Operation, ...] = (client.append,)
    kill_chance: float = 0.0
    close_chance: float = 0.02
    choices: tuple[Operation, ...] = field(init=False)

    def __post_init__(self) -> None:
        weights: Weights = {**_BASE, **self.weights}
        choices = tuple(operation for operation, weight in weights.items() for _ in range(weight))
        object.__setattr__(self, "choices", choices)


_ANY = (Durability.FSYNC, Durability.FSYNC, Durability.INTERVAL)
_CHECKPOINTS: Weights = {owner.checkpoint: 1, owner.checkpoint_step: 4}
_EVERYTHING: Weights = {
    **_CHECKPOINTS,
    client.append_transactional: 6,
    client.end_transactions: 2,
    owner.roll: 2,
    owner.delete_before: 1,
    owner.retain: 2,
    owner.compact: 2,
    owner.truncate: 1,
    owner.verify: 1,
    owner.repair: 1,
    owner.expire_producers: 1,
    owner.delete: 1,
    owner.remove_files: 1,
}

KINDS = (
    WorkloadKind("appends", {client.append_transactional: 2, owner.checkpoint: 1}),
    WorkloadKind("checkpoints", {**_CHECKPOINTS, owner.checkpoint_step: 9, owner.roll: 2}),
    WorkloadKind("truncation", {**_CHECKPOINTS, owner.truncate: 4, owner.roll: 2}, _ANY, past_appends=12),
    WorkloadKind(
        "retention",
        {**_CHECKPOINTS, owner.retain: 6, owner.delete_before: 2, owner.wait: 3, owner.remove_files: 2, owner.roll: 2},
        partitions=(EVENTS, AUDIT),
        past_appends=16,
    ),
    WorkloadKind(
        "producers", {**_CHECKPOINTS, client.retry: 6, owner.expire_producers: 3, owner.wait: 3, owner.truncate: 1}
    ),
    WorkloadKind(
        "compaction",
        {**_CHECKPOINTS, owner.compact: 6, owner.roll: 4, owner.wait: 4, owner.remove_files: 1},
        partitions=(TABLE,),
        past_appends=12,
    ),
    WorkloadKind(
        "transactions",
        {**_CHECKPOINTS, client.append_transactional: 12, owner.roll: 1, owner.truncate: 1, owner.delete_before: 1},
        _ANY,
    ),
    WorkloadKind(
        "compaction of transactions",
        {
            **_CHECKPOINTS,
            client.append_transactional: 10,
            client.end_transactions: 4,
            owner.compact: 8,
            owner.roll: 5,
            owner.wait: 4,
        },
        _ANY,
        partitions=(TABLE,),
        past_appends=24,
        past_operations=(
            client.append,
            client.append_transactional,
            client.append_transactional,
            client.append_transactional,
            client.end_transactions,
        ),
    ),
    WorkloadKind("partitions", {**_CHECKPOINTS, owner.create: 6, owner.delete: 4, owner.remove_files: 2}, _ANY),
    WorkloadKind("interval", _EVERYTHING, (Durability.INTERVAL,), past_appends=16),
    WorkloadKind("kills", _EVERYTHING, _ANY, kill_chance=0.08, past_appends=16),
    WorkloadKind("everything", _EVERYTHING, _ANY, kill_chance=0.02, operations=45, past_appends=16),
)
