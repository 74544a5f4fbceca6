"""Iceberg tables in a Hive metastore, with what pyiceberg's catalog lacks for writers that fail.

- Every request has a time limit, a property of the catalog in the name of Hive's own client:
  `hive.metastore.client.socket.timeout`, in seconds, 60 by default. One of pyiceberg's own waits forever.
- Errors of the connection and of the metastore itself are OSErrors, after which the outcome of a commit is unknown.
- pyiceberg commits under a lock of the metastore. A lock expires, by default five minutes after its holder was last
  heard of, and a writer that was stopped for longer would replace the commits of others. So a commit also names the
  version that it replaces, and the metastore compares it, as Iceberg's Java client does (HIVE-26882: Hive 2.3.10 and
  4.0; older ones ignore it).
- A lock is released over a connection of its own, because the first one may be broken. Else all writers would wait
  until it expires, as they do if a writer is killed while it holds the lock.
- A writer waits for a lock for a minute in short steps; pyiceberg's own waits are 2, 4 and 8 seconds.

Importing this module loads Thrift, so processes do so only for a Hive catalog.
"""

from types import TracebackType
from uuid import uuid4

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import (
    EnvironmentContext,
    LockRequest,
    LockResponse,
    MetaException,
    ShowLocksRequest,
    UnlockRequest,
)
from hive_metastore.ttypes import Table as HiveTable
from pyiceberg.catalog.hive import (
    HIVE_KERBEROS_AUTH,
    HIVE_KERBEROS_SERVICE_NAME,
    HIVE_KERBEROS_SERVICE_NAME_DEFAULT,
    LOCK_CHECK_MAX_WAIT_TIME,
    LOCK_CHECK_RETRIES,
    PROP_METADATA_LOCATION,
    PROP_PREVIOUS_METADATA_LOCATION,
    HiveCatalog,
    _HiveClient,
)
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.typedef import Properties
from pyiceberg.utils.properties import property_as_bool, property_as_int
from thrift.protocol import TBinaryProtocol
from thrift.protocol.TProtocol import TProtocolException
from thrift.transport import TTransport
from thrift.transport.TTransport import TTransportException

from logbrook.model.event_log import event_logger

SOCKET_TIMEOUT = "hive.metastore.client.socket.timeout"
_SOCKET_TIMEOUT_S = 60
_LOCK_DEFAULTS = {LOCK_CHECK_MAX_WAIT_TIME: "0.5", LOCK_CHECK_RETRIES: "120"}
_EXPECTED_KEY = "expected_parameter_key"
_EXPECTED_VALUE = "expected_parameter_value"
_MODIFIED = "has been modified"
# Other errors of Thrift are answers, such as that a table does not exist.
_FAILURES = (TTransportException, TProtocolException, MetaException)

_logger = event_logger(__name__)


class LimitedHiveCatalog(HiveCatalog):
    """A Hive catalog whose requests have time limits, and whose commits replace only the version that they know."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **{**_LOCK_DEFAULTS, **properties})

    @staticmethod
    def _create_hive_client(properties: Properties) -> "LimitedHiveClient":
        return LimitedHiveClient(properties)


class LimitedHiveClient(_HiveClient):
    """Connections to the first address of the catalog, one at a time."""

    def __init__(self, properties: Properties) -> None:
        timeout_s = property_as_int(properties, SOCKET_TIMEOUT, _SOCKET_TIMEOUT_S)
        assert timeout_s is not None
        self._timeout_ms = timeout_s * 1000
        self._properties = properties
        super().__init__(
            properties["uri"].partition(",")[0],
            properties.get("ugi"),
            property_as_bool(properties, HIVE_KERBEROS_AUTH, default=False),
            properties.get(HIVE_KERBEROS_SERVICE_NAME, HIVE_KERBEROS_SERVICE_NAME_DEFAULT),
        )

    def another(self) -> "LimitedHiveClient":
        """Return a client for a connection beside that of this one."""
        return LimitedHiveClient(self._properties)

    def _init_thrift_transport(self) -> TTransport.TTransportBase:
        transport = super()._init_thrift_transport()
        # Thrift's transports have no public way to the socket below them.
        names = ("_TBufferedTransport__trans", "transport")
        socket = next(getattr(transport, name) for name in names if hasattr(transport, name))
        socket.setTimeout(self._timeout_ms)
        return transport

    def _client(self) -> "CommittingClient":
        client = CommittingClient(TBinaryProtocol.TBinaryProtocol(self._transport), self)
        if self._ugi:
            client.set_ugi(*self._ugi)
        return client

    def __enter__(self) -> "CommittingClient":
        try:
            client: CommittingClient = super().__enter__()
        except _FAILURES as error:
            raise _os_error(error) from error
        return client

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        if isinstance(error, _FAILURES):
            raise _os_error(error) from error


class CommittingClient(Client):  # type: ignore[misc]
    """The requests of one connection. Locks are named, so that one can be found if the answer to it is lost."""

    def __init__(self, protocol: TBinaryProtocol.TBinaryProtocol, connections: LimitedHiveClient) -> None:
        super().__init__(protocol)
        self._connections = connections

    def lock(self, rqst: LockRequest) -> LockResponse:
        rqst.agentInfo = f"logbrook-{uuid4()}"
        try:
            return super().lock(rqst)
        except _FAILURES:
            self._release_named(rqst)
            raise

    def unlock(self, rqst: UnlockRequest) -> None:
        """Release a lock; a failure is only logged, because the commit before it is done or has failed already."""
        try:
            with self._connections.another() as client:
                client.unlock_here(rqst)
        except OSError as error:
            _logger.warning("hive lock not released", lock_id=rqst.lockid, error=str(error))

    def unlock_here(self, request: UnlockRequest) -> None:
        super().unlock(request)

    def alter_table_with_environment_context(
        self, dbname: str, tbl_name: str, new_tbl: HiveTable, environment_context: EnvironmentContext
    ) -> None:
        previous = new_tbl.parameters[PROP_PREVIOUS_METADATA_LOCATION]
        environment_context.properties |= {_EXPECTED_KEY: PROP_METADATA_LOCATION, _EXPECTED_VALUE: previous}
        try:
            super().alter_table_with_environment_context(dbname, tbl_name, new_tbl, environment_context)
        except MetaException as error:
            if _MODIFIED in str(error.message):
                raise CommitFailedException(f"{dbname}.{tbl_name} was changed since {previous}") from error
            raise

    def _release_named(self, request: LockRequest) -> None:
        """Release the lock that a request without an answer may have taken."""
        (component,) = request.component
        try:
            with self._connections.another() as client:
                locks = client.show_locks(ShowLocksRequest(dbname=component.dbname, tablename=component.tablename))
                for lock in locks.locks:
                    if lock.agentInfo == request.agentInfo:
                        client.unlock_here(UnlockRequest(lockid=lock.lockid))
        except OSError as error:
            table = f"{component.dbname}.{component.tablename}"
            _logger.warning("hive lock may not be released", table=table, error=str(error))


def _os_error(error: Exception) -> OSError:
    return OSError(f"the Hive metastore: {getattr(error, 'message', None) or error}")
