"""The components of the broker that request handlers use. Created by `broker`."""

import asyncio
from dataclasses import dataclass

from logbrook.config import BrokerConfig
from logbrook.core.fetch_sessions import FetchSessions
from logbrook.ports import Clock, Random
from logbrook.protocol.schema import Versions
from logbrook.server.cluster.cluster_admin import ClusterAdmin
from logbrook.server.cluster.cluster_features import ClusterFeatures
from logbrook.server.cluster.replicas import ReplicaManager
from logbrook.server.cluster_view import ClusterView
from logbrook.server.cold_reads import ColdReads
from logbrook.server.coordinators.groups import GroupCoordinatorService
from logbrook.server.coordinators.transactions import TransactionCoordinatorService
from logbrook.server.fetch_purgatory import FetchPurgatory
from logbrook.server.log_appender import LogAppender
from logbrook.server.probe import ServerProbe
from logbrook.server.record_inspection import RecordInspector
from logbrook.server.response_memory import ResponseMemory
from logbrook.server.security.audit import AuditLog
from logbrook.server.security.authentication import Authentication
from logbrook.server.security.authorizer import Authorizer
from logbrook.server.security.quotas import QuotaEnforcement
from logbrook.server.security.state import SecurityState
from logbrook.server.topics import Topics


@dataclass
class Services:
    """One per broker, shared by the handlers of both protocols, on the event loop."""

    config: BrokerConfig
    loop: asyncio.AbstractEventLoop
    clock: Clock
    view: ClusterView
    topics: Topics
    appender: LogAppender
    inspector: RecordInspector
    cold_reads: ColdReads
    fetch_purgatory: FetchPurgatory
    fetch_sessions: FetchSessions
    groups: GroupCoordinatorService
    transactions: TransactionCoordinatorService
    response_memory: ResponseMemory
    probe: ServerProbe
    # Served versions by API key, from the handlers of the advertised APIs.
    served_versions: dict[int, Versions]
    random: Random
    security: SecurityState
    authentication: Authentication
    audit: AuditLog
    authorizer: Authorizer
    # Of a broker in a cluster; None on a single node.
    replicas: ReplicaManager | None = None
    cluster_admin: ClusterAdmin | None = None
    cluster_features: ClusterFeatures | None = None

    def __post_init__(self) -> None:
        self.quotas = QuotaEnforcement(self.security.quotas, self.config.network, self.loop, self.clock, self.probe)
