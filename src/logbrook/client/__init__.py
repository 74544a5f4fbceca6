"""Client library for any Kafka cluster, which moves raw record batches. Used by Spark, the CLI, the console and tests.

Main types:

- `Client`: connections, cached leaders, one produce or fetch at a time; `Connection` sends any message to one broker.
- `Producer`: many batches in flight, each written once; `TransactionalProducer`: batches and offsets, all or nothing.
- `RecordWriter`, `RecordsReader` and `GroupMember`: decoded records and consumer groups, for people and tools.
- `Admin` and its parts: topics, groups, settings. `PartitionRequests`: requests about many partitions at once.
- `Coordinators`: the coordinators of groups and transactions, and committed offsets.
- `ClientSecurity`: TLS and SASL of the connections, from the options of Kafka's clients (`parse_client_security`).
- `RetryPolicy`: when a failed operation is tried again; used by everything that retries.

Flow of a produce: `RecordWriter` builds batches, `Producer` queues them by partition (`PartitionQueue`), sends those
that are due to the leaders that `Client` has cached, requeues those that fail and drops those that are acknowledged.
A transaction adds, around this, requests to the coordinator that `Coordinators` finds. Flow of a fetch: `Client.fetch`
returns the batches of one partition as bytes (`Fetched`), `AbortedBatches` identifies those to skip.

Every request may raise ClientError or ProtocolError. `errors` says which are retriable.

Imports `protocol`, `records` and `model`; neither `storage` nor `core`, which are the broker's.
"""

from logbrook.client.client import EARLIEST, LATEST, Client
from logbrook.client.connection import Connection, InFlightRequest
from logbrook.client.coordinators import Coordinators, OffsetAndMetadata
from logbrook.client.errors import (
    BrokerCertificateError,
    BrokerError,
    ClientCertificateError,
    ClientError,
    ConnectFailedError,
    ConnectionClosedError,
    ConnectionSecurityError,
    DeliveryTimedOutError,
    MechanismNotOfferedError,
    NetworkError,
    NotKafkaError,
    ProducerFencedError,
    ProducerStateError,
    SaslRefusedError,
    SecurityOptionError,
    TimedOutError,
    TokenUnavailableError,
    TransactionTimedOutError,
    UnexpectedAnswerError,
    WrongSecurityProtocolError,
)
from logbrook.client.fetched import Fetched
from logbrook.client.producer import Producer
from logbrook.client.retry import RetryPolicy
from logbrook.client.security import ClientSecurity, parse_client_security
from logbrook.client.transactional import TransactionalProducer

__all__ = [
    "EARLIEST",
    "LATEST",
    "BrokerCertificateError",
    "BrokerError",
    "Client",
    "ClientCertificateError",
    "ClientError",
    "ClientSecurity",
    "ConnectFailedError",
    "Connection",
    "ConnectionClosedError",
    "ConnectionSecurityError",
    "Coordinators",
    "DeliveryTimedOutError",
    "Fetched",
    "InFlightRequest",
    "MechanismNotOfferedError",
    "NetworkError",
    "NotKafkaError",
    "OffsetAndMetadata",
    "Producer",
    "ProducerFencedError",
    "ProducerStateError",
    "RetryPolicy",
    "SaslRefusedError",
    "SecurityOptionError",
    "TimedOutError",
    "TokenUnavailableError",
    "TransactionTimedOutError",
    "TransactionalProducer",
    "UnexpectedAnswerError",
    "WrongSecurityProtocolError",
    "parse_client_security",
]
