"""Says at the end of every run how many power-loss states were checked; see `crash`."""

from tests.crash.conftest import pytest_terminal_summary

__all__ = ["pytest_terminal_summary"]
