"""What handlers work with: the parts of the broker, as `broker` put them together."""

import asyncio
from dataclasses import dataclass

from logbrook.config import BrokerConfig
from logbrook.core.fetch_sessions import FetchSessions
from logbrook.ports import Clock
from logbrook.protocol.schema import Versions
from logbrook.server.appends import Appends
from logbrook.server.fetch_waits import FetchWaits
from logbrook.server.groups import Groups
from logbrook.server.probe import ServerProbe
from logbrook.server.topics import Topics
from logbrook.server.transactions import Transactions


@dataclass
class Endpoint:
    """Where clients are told to find the broker."""

    host: str
    port: int


@dataclass
class Services:
    config: BrokerConfig
    loop: asyncio.AbstractEventLoop
    clock: Clock
    endpoint: Endpoint
    topics: Topics
    appends: Appends
    fetch_waits: FetchWaits
    fetch_sessions: FetchSessions
    groups: Groups
    transactions: Transactions
    probe: ServerProbe
    # By API key, from the list of handlers.
    served_versions: dict[int, Versions]
    # The bytes of answers that clients have not taken, over all connections that are slow to.
    unsent_bytes: int = 0
