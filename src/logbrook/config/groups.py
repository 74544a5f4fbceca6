"""What may be set for consumer groups."""

from enum import StrEnum

from logbrook.config.setting import Settings, setting

_MINUTE_MS = 60_000


class OffsetStore(StrEnum):
    """Where committed offsets live."""

    TOPIC = "topic"
    MEMORY = "memory"


class GroupConfig(Settings):
    """The settings of the group coordinator."""

    offsets: OffsetStore = setting(
        OffsetStore.TOPIC,
        "topic: committed offsets are as durable as records, in __consumer_offsets. memory: a restart forgets them.",
        flag="offsets",
    )
    offsets_partitions: int = setting(
        1,
        "How many partitions __consumer_offsets gets when it is created.",
        kafka="offsets.topic.num.partitions",
        at_least=1,
        at_most=1_000,
    )
    offsets_retention_ms: int = setting(
        7 * 24 * 60 * _MINUTE_MS,
        "Offsets of a group that has had no members for this long are forgotten.",
        unit="ms",
        at_least=1,
    )
    offset_metadata_bytes_max: int = setting(
        4096,
        "The longest note that a client may store with an offset.",
        unit="bytes",
        kafka="offset.metadata.max.bytes",
        at_least=0,
    )
    session_timeout_ms_min: int = setting(
        6_000,
        "The shortest session timeout that a member may ask for.",
        unit="ms",
        kafka="group.min.session.timeout.ms",
        at_least=1,
    )
    session_timeout_ms_max: int = setting(
        30 * _MINUTE_MS,
        "The longest session timeout that a member may ask for.",
        unit="ms",
        kafka="group.max.session.timeout.ms",
        at_least=1,
    )
    initial_rebalance_delay_ms: int = setting(
        3_000,
        "How long the first member of an empty group waits for others to join.",
        unit="ms",
        kafka="group.initial.rebalance.delay.ms",
        at_least=0,
    )
    members_max: int = setting(1_000, "How many members a group may have.", kafka="group.max.size", at_least=1)
    groups_max: int = setting(100_000, "How many groups there may be.", at_least=1)
