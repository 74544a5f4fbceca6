"""A small client that moves raw batches: for Spark executors, the command line, replication and tests.

`Client` knows topics and their leaders; `Connection` speaks any message to one broker.
"""

from logbrook.client.client import EARLIEST, LATEST, Client, Fetched
from logbrook.client.connection import Connection, Sent
from logbrook.client.errors import (
    BrokerError,
    ClientError,
    ConnectFailedError,
    ConnectionClosedError,
    TimedOutError,
    UnexpectedAnswerError,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "BrokerError",
    "Client",
    "ClientError",
    "ConnectFailedError",
    "Connection",
    "ConnectionClosedError",
    "Fetched",
    "Sent",
    "TimedOutError",
    "UnexpectedAnswerError",
]
