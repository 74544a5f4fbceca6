"""All metrics, in the order in which they are shown."""

from logbrook.server.metrics.broker import BROKER, CONNECTIONS, REQUESTS, TRAFFIC
from logbrook.server.metrics.declaration import Metric
from logbrook.server.metrics.groups import GROUPS
from logbrook.server.metrics.partitions import PARTITIONS
from logbrook.server.metrics.storage import CLEANER, STORAGE, WAL
from logbrook.server.metrics.transactions import TRANSACTIONS

SECTIONS: dict[str, tuple[Metric, ...]] = {
    "The broker": BROKER,
    "Connections": CONNECTIONS,
    "Requests": REQUESTS,
    "Topics": TRAFFIC,
    "Partitions": PARTITIONS,
    "Consumer groups": GROUPS,
    "Transactions": TRANSACTIONS,
    "Storage": STORAGE,
    "The write-ahead log": WAL,
    "The log cleaner": CLEANER,
}


def all_metrics() -> list[Metric]:
    return [metric for section in SECTIONS.values() for metric in section]
