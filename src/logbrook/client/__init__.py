"""A small client that moves raw batches: for Spark executors, the command line, replication and tests.

`Client` knows topics and their leaders; `Producer` writes many batches at a time, each once; `Connection` speaks any
message to one broker.
"""

from logbrook.client.client import EARLIEST, LATEST, Client, Fetched
from logbrook.client.connection import Connection, Sent
from logbrook.client.errors import (
    BrokerError,
    ClientError,
    ConnectFailedError,
    ConnectionClosedError,
    DeliveryTimedOutError,
    ProducerStateError,
    TimedOutError,
    UnexpectedAnswerError,
)
from logbrook.client.producer import Producer

__all__ = [
    "EARLIEST",
    "LATEST",
    "BrokerError",
    "Client",
    "ClientError",
    "ConnectFailedError",
    "Connection",
    "ConnectionClosedError",
    "DeliveryTimedOutError",
    "Fetched",
    "Producer",
    "ProducerStateError",
    "Sent",
    "TimedOutError",
    "UnexpectedAnswerError",
]
