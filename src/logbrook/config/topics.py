"""What may be set for topics as a whole; what each topic may set for itself is in `log`."""

from logbrook.config.setting import Settings, setting


class TopicsConfig(Settings):
    """The settings of topic creation."""

    auto_create: bool = setting(
        False,
        "Create a topic when a client asks about one that is not there, if the client allows it.",
        kafka="auto.create.topics.enable",
        flag="auto-create-topics",
    )
    partitions: int = setting(
        1,
        "How many partitions a topic gets when its creator does not say.",
        kafka="num.partitions",
        flag="partitions",
        at_least=1,
        at_most=10_000,
    )
    partitions_max: int = setting(100_000, "How many partitions the broker holds at most.", at_least=1)
