"""All settings of a broker: the sections that its parts read, and what is left over."""

from dataclasses import field
from enum import StrEnum

from logbrook.config.console import ConsoleConfig
from logbrook.config.groups import GroupConfig
from logbrook.config.log import LogConfig
from logbrook.config.network import NetworkConfig
from logbrook.config.setting import Settings, setting
from logbrook.config.storage import StorageConfig
from logbrook.config.topics import TopicsConfig
from logbrook.config.transactions import TransactionConfig


class Maintenance(StrEnum):
    """Who decides when retention, compaction and checkpoints happen."""

    BACKGROUND = "background"
    ON_DEMAND = "on-demand"


class LogFormat(StrEnum):
    """How the broker's own log reads. auto: for people on a terminal, JSON elsewhere."""

    AUTO = "auto"
    HUMAN = "human"
    JSON = "json"


class LogLevel(StrEnum):
    """How much the broker says, from all to little."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class MaintenanceConfig(Settings):
    """The settings of the broker's housekeeping."""

    mode: Maintenance = setting(
        Maintenance.BACKGROUND,
        "background: retention, compaction and expiry run by themselves. on-demand: they are left to the operator.",
        flag="maintenance",
    )
    interval_ms: int = setting(
        30_000,
        "How often the logs are looked at for something to remove or compact.",
        unit="ms",
        kafka="log.retention.check.interval.ms",
        at_least=1,
    )


class MetricsConfig(Settings):
    """The settings of the HTTP listener for metrics, health and readiness."""

    listen: str = setting(
        "127.0.0.1:9644", "HOST:PORT for /metrics, /healthz and /readyz; empty for none.", flag="metrics"
    )


class LoggingConfig(Settings):
    """The settings of the broker's own log, which goes to standard error."""

    format: LogFormat = setting(
        LogFormat.AUTO, "human, json, or auto: human on a terminal and JSON elsewhere.", flag="log-format"
    )
    level: LogLevel = setting(
        LogLevel.INFO, "The least that is logged: debug, info, warning or error.", flag="log-level"
    )


class BrokerConfig(Settings):
    """Everything that `logbrook serve` can be told."""

    data: str = setting("logbrook-data", "The data directory; it is created when it is not there.")
    node_id: int = setting(1, "The broker's number, as clients see it.", kafka="node.id", at_least=0, at_most=2**31 - 1)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    topics: TopicsConfig = field(default_factory=TopicsConfig)
    log: LogConfig = field(default_factory=LogConfig)
    groups: GroupConfig = field(default_factory=GroupConfig)
    transactions: TransactionConfig = field(default_factory=TransactionConfig)
    storage: StorageConfig = field(default_factory=StorageConfig)
    maintenance: MaintenanceConfig = field(default_factory=MaintenanceConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    console: ConsoleConfig = field(default_factory=ConsoleConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
