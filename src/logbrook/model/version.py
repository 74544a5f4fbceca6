"""The version of Logbrook that is installed."""

from importlib.metadata import version

VERSION = version("logbrook")
