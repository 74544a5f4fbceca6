"""Sockets that kafka-python leaks when a broker stops, and how a test keeps their warnings from later tests."""

import gc

import pytest

# kafka-python does not close the socket of a connection attempt that fails (sock_connect in kafka/net/inet.py). Such a
# socket has no local address, which all sockets of Logbrook have.
UNCONNECTED_SOCKETS = r"ignore:unclosed <socket.*laddr=\('0\.0\.0\.0', \d+\)>:ResourceWarning"


def forget_connection_errors(caplog: pytest.LogCaptureFixture) -> None:
    """Drop captured log records: kafka-python logs errors of connections, whose tracebacks hold the leaked sockets."""
    for phase in ("setup", "call"):
        caplog.get_records(phase).clear()
    caplog.clear()


def collect_leaks() -> None:
    """Collect leaked sockets while their warnings are filtered, so that no later test collects them."""
    gc.collect()
