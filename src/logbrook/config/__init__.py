"""Settings of the broker: declarations, loading, Kafka's names for them, and the generated reference.

- Declarations: each section is a frozen dataclass of type `setting.Settings` (`network`, `security`, `topics`,
  `storage`, `coordinators`, `cluster`), and `broker.BrokerConfig` holds them all.
- `catalogue` lists every setting with its flag, environment variable and key; `values` parses and formats values.
- `loading.load_settings` merges command line, environment and TOML file into a `LoadedSettings`, or raises
  `errors.SettingsRefusedError` with every mistake and its line (`toml_lines`).
- `kafka_settings` reads and writes the same settings under Kafka's names for the config APIs; `accepted_settings` are
  those of Kafka that have no effect here.
- `reference` generates docs/SETTINGS.md.

Other packages import the section classes from here. This package imports `model` only.
"""

from logbrook.config.broker import BrokerConfig, LogFormat, LoggingConfig, LogLevel
from logbrook.config.coordinators import GroupConfig, OffsetStore, TransactionConfig
from logbrook.config.network import ConsoleConfig, MetricsConfig, NetworkConfig
from logbrook.config.storage import Durability, MaintenanceConfig, MaintenanceMode, StorageConfig
from logbrook.config.topics import (
    UNLIMITED,
    CleanupPolicy,
    CompressionType,
    LogConfig,
    TimestampSource,
    TopicsConfig,
    Validation,
)

__all__ = [
    "UNLIMITED",
    "BrokerConfig",
    "CleanupPolicy",
    "CompressionType",
    "ConsoleConfig",
    "Durability",
    "GroupConfig",
    "LogConfig",
    "LogFormat",
    "LogLevel",
    "LoggingConfig",
    "MaintenanceConfig",
    "MaintenanceMode",
    "MetricsConfig",
    "NetworkConfig",
    "OffsetStore",
    "StorageConfig",
    "TimestampSource",
    "TopicsConfig",
    "TransactionConfig",
    "Validation",
]
