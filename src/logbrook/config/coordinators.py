"""Settings of the group coordinator and the transaction coordinator."""

from enum import StrEnum

from logbrook.config.setting import Settings, setting

_MINUTE_MS = 60_000
_MIB = 1 << 20


class OffsetStore(StrEnum):
    """Storage of committed offsets."""

    TOPIC = "topic"
    MEMORY = "memory"


class GroupConfig(Settings):
    """The settings of the group coordinator."""

    offsets: OffsetStore = setting(
        OffsetStore.TOPIC,
        "topic: committed offsets are records of __consumer_offsets, as durable as any other. memory: they are lost on "
        "restart; for tests and throw-away brokers.",
        flag="offsets",
    )
    offsets_partitions: int = setting(
        1,
        "Number of partitions of __consumer_offsets when it is created. An existing topic keeps its count, because "
        "groups are assigned to partitions by hash.",
        kafka="offsets.topic.num.partitions",
        at_least=1,
        at_most=1_000,
    )
    offsets_retention_ms: int = setting(
        7 * 24 * 60 * _MINUTE_MS,
        "Committed offsets of a group are deleted when it has had no members for this long. Consumers that return "
        "later start from auto.offset.reset.",
        at_least=1,
    )
    offset_metadata_bytes_max: int = setting(
        4096,
        "Maximum size of the metadata string that a client commits with an offset.",
        kafka="offset.metadata.max.bytes",
        at_least=0,
    )
    session_timeout_ms_min: int = setting(
        6_000,
        "Minimum session timeout of a group member. Shorter ones detect dead members sooner and cost more heartbeats.",
        kafka="group.min.session.timeout.ms",
        at_least=1,
    )
    session_timeout_ms_max: int = setting(
        30 * _MINUTE_MS,
        "Maximum session timeout of a group member. The partitions of a dead member are not read until its session "
        "times out.",
        kafka="group.max.session.timeout.ms",
        at_least=1,
    )
    initial_rebalance_delay_ms: int = setting(
        3_000,
        "Time that the first rebalance of an empty group waits for more members, so that members started together "
        "cause one rebalance. 0 suits tests and single consumers.",
        kafka="group.initial.rebalance.delay.ms",
        at_least=0,
    )
    members_max: int = setting(
        1_000,
        "Maximum number of members of a group; further ones are refused with GROUP_MAX_SIZE_REACHED.",
        kafka="group.max.size",
        at_least=1,
    )
    groups_max: int = setting(
        100_000, "Maximum number of groups. It bounds the memory that clients can claim with group ids.", at_least=1
    )
    member_bytes_max: int = setting(
        _MIB,
        "Maximum size of a member: its metadata for all assignment protocols, client id and instance id. JoinGroup "
        "with more is refused with INVALID_REQUEST. Kafka Streams needs the most, about 100 bytes per partition.",
        at_least=1024,
    )
    group_bytes_max: int = setting(
        16 * _MIB,
        "Maximum size of the members of a group with their assignments. What exceeds it is refused with "
        "GROUP_MAX_SIZE_REACHED.",
        at_least=1024,
    )
    state_bytes_max: int = setting(
        512 * _MIB,
        "Maximum memory of all groups: members, assignments, committed and pending offsets. New members are refused "
        "with GROUP_MAX_SIZE_REACHED, offsets with INVALID_COMMIT_OFFSET_SIZE, groups with POLICY_VIOLATION.",
        at_least=1024,
    )


class TransactionConfig(Settings):
    """The settings of the transaction coordinator."""

    partitions: int = setting(
        1,
        "Number of partitions of __transaction_state when it is created. An existing topic keeps its count, because "
        "transactional ids are assigned to partitions by hash.",
        kafka="transaction.state.log.num.partitions",
        at_least=1,
        at_most=1_000,
    )
    timeout_ms_max: int = setting(
        15 * _MINUTE_MS,
        "Maximum transaction timeout that a producer may request. An open transaction blocks read_committed consumers "
        "until it ends or times out.",
        kafka="transaction.max.timeout.ms",
        at_least=1,
    )
    id_expiration_ms: int = setting(
        7 * 24 * 60 * _MINUTE_MS,
        "A transactional id is deleted when it has not been used for this long and has no open transaction. A producer "
        "that returns later gets a new producer id.",
        kafka="transactional.id.expiration.ms",
        at_least=1,
    )
    ids_max: int = setting(
        100_000,
        "Maximum number of transactional ids. It bounds the memory that clients can claim with them.",
        at_least=1,
    )
    state_bytes_max: int = setting(
        256 * _MIB,
        "Maximum memory of all transactional ids and the partitions of their transactions. New ids and further "
        "partitions are refused with POLICY_VIOLATION.",
        at_least=1024,
    )
