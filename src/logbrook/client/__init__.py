"""A small client that moves raw batches: for Spark executors, the command line, replication and tests.

`Client` knows topics and their leaders; `Producer` writes many batches at a time, each once; `TransactionalProducer`
makes all of them visible together; `Connection` speaks any message to one broker. For people and their tools there are
`Admin`, `RecordWriter`, `RecordsReader` and `GroupMember`, each in the module of its name.
"""

from logbrook.client.client import EARLIEST, LATEST, Client, Fetched
from logbrook.client.connection import Connection, Sent
from logbrook.client.coordinators import CommittedOffset, Coordinators
from logbrook.client.errors import (
    BrokerError,
    ClientError,
    ConnectFailedError,
    ConnectionClosedError,
    DeliveryTimedOutError,
    ProducerFencedError,
    ProducerStateError,
    TimedOutError,
    TransactionTimedOutError,
    UnexpectedAnswerError,
)
from logbrook.client.producer import Producer
from logbrook.client.transactional import TransactionalProducer

__all__ = [
    "EARLIEST",
    "LATEST",
    "BrokerError",
    "Client",
    "ClientError",
    "CommittedOffset",
    "ConnectFailedError",
    "Connection",
    "ConnectionClosedError",
    "Coordinators",
    "DeliveryTimedOutError",
    "Fetched",
    "Producer",
    "ProducerFencedError",
    "ProducerStateError",
    "Sent",
    "TimedOutError",
    "TransactionTimedOutError",
    "TransactionalProducer",
    "UnexpectedAnswerError",
]
