"""Every setting, declared once."""

from logbrook.config.broker import (
    BrokerConfig,
    LogFormat,
    LoggingConfig,
    LogLevel,
    Maintenance,
    MaintenanceConfig,
    MetricsConfig,
)
from logbrook.config.console import ConsoleConfig
from logbrook.config.groups import GroupConfig, OffsetStore
from logbrook.config.log import UNLIMITED, CleanupPolicy, CompressionType, LogConfig, TimestampSource
from logbrook.config.network import NetworkConfig
from logbrook.config.storage import Durability, StorageConfig
from logbrook.config.topics import TopicsConfig
from logbrook.config.transactions import TransactionConfig

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
    "Maintenance",
    "MaintenanceConfig",
    "MetricsConfig",
    "NetworkConfig",
    "OffsetStore",
    "StorageConfig",
    "TimestampSource",
    "TopicsConfig",
    "TransactionConfig",
]
