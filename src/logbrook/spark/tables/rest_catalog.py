"""Iceberg's REST catalog with time limits: a request of pyiceberg's own waits forever for an answer.

The limits are properties of the catalog, in the names of Iceberg's Java client:

    rest.client.connection-timeout-ms   10000
    rest.client.socket-timeout-ms       60000, for each read from the connection

A request that exceeds one raises an OSError, after which the outcome of a commit is unknown.

Importing this module takes 0.2 s of CPU, so processes do so only for a REST catalog.
"""

from functools import partial

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.utils.properties import property_as_int
from requests import Session

CONNECTION_TIMEOUT = "rest.client.connection-timeout-ms"
SOCKET_TIMEOUT = "rest.client.socket-timeout-ms"
_CONNECTION_TIMEOUT_MS = 10_000
_SOCKET_TIMEOUT_MS = 60_000


class LimitedRestCatalog(RestCatalog):
    """A REST catalog whose requests have time limits."""

    def _config_headers(self, session: Session) -> None:
        """Set the limits, too: pyiceberg calls this first for each session, before it asks for a token."""
        super()._config_headers(session)
        connect_ms = property_as_int(self.properties, CONNECTION_TIMEOUT, _CONNECTION_TIMEOUT_MS)
        read_ms = property_as_int(self.properties, SOCKET_TIMEOUT, _SOCKET_TIMEOUT_MS)
        assert connect_ms is not None
        assert read_ms is not None
        limits_s = connect_ms / 1000, read_ms / 1000
        # Adapters could set it too, but pyiceberg mounts its own for signed requests.
        session.request = partial(session.request, timeout=limits_s)  # type: ignore[method-assign]
