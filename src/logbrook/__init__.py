"""Logbrook: a log-structured message broker for Kafka clients."""

from importlib.metadata import version

__version__ = version("logbrook")
