"""Every setting, declared once."""

from logbrook.config.log import UNLIMITED, CleanupPolicy, LogConfig, TimestampSource
from logbrook.config.storage import Durability, StorageConfig

__all__ = ["UNLIMITED", "CleanupPolicy", "Durability", "LogConfig", "StorageConfig", "TimestampSource"]
