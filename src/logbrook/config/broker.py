"""`BrokerConfig`, the root of all settings: one section per subsystem, the data directory, the broker's own log."""

from dataclasses import field
from enum import StrEnum

from logbrook.config.cluster import ClusterConfig
from logbrook.config.coordinators import GroupConfig, TransactionConfig
from logbrook.config.network import ConsoleConfig, MetricsConfig, NetworkConfig
from logbrook.config.security import SecurityConfig
from logbrook.config.setting import Settings, setting
from logbrook.config.storage import MaintenanceConfig, StorageConfig
from logbrook.config.topics import LogConfig, TopicsConfig

# Between the paths of several data directories.
PATH_SEPARATOR = ":"


class LogFormat(StrEnum):
    """Format of the broker's own log."""

    AUTO = "auto"
    HUMAN = "human"
    JSON = "json"


class LogLevel(StrEnum):
    """Minimum severity of a line in the broker's own log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LoggingConfig(Settings):
    """The settings of the broker's own log, which goes to standard error."""

    format: LogFormat = setting(
        LogFormat.AUTO,
        "human: one readable line per event. json: one JSON object per line. auto: human on a terminal, else json.",
        flag="log-format",
    )
    level: LogLevel = setting(LogLevel.INFO, "Minimum severity of the lines that are logged.", flag="log-level")


class BrokerConfig(Settings):
    """All settings of `logbrook serve`."""

    data: str = setting(
        "logbrook-data",
        "Data directory; created if it does not exist. One process can have it open. Several, one per disk, are "
        "separated by colons, or the flag is repeated: each has its own write-ahead log, and the others go on when one "
        "fails.",
    )
    node_id: int = setting(
        1,
        "Broker id that clients see in metadata; unique within a cluster.",
        kafka="node.id",
        flag="node",
        at_least=0,
        at_most=2**31 - 1,
    )
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    security: SecurityConfig = field(default_factory=SecurityConfig)
    topics: TopicsConfig = field(default_factory=TopicsConfig)
    log: LogConfig = field(default_factory=LogConfig)
    groups: GroupConfig = field(default_factory=GroupConfig)
    transactions: TransactionConfig = field(default_factory=TransactionConfig)
    storage: StorageConfig = field(default_factory=StorageConfig)
    maintenance: MaintenanceConfig = field(default_factory=MaintenanceConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    console: ConsoleConfig = field(default_factory=ConsoleConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)

    @property
    def data_directories(self) -> list[str]:
        """The paths in `data`."""
        return self.data.split(PATH_SEPARATOR)
