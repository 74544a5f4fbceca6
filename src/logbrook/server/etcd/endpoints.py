"""Connections to the members of an etcd cluster.

Requests go to one member at a time. If it cannot be reached, does not answer in time, or has no leader, the next one is
used from then on. A request is sent once: the caller has to know that the outcome of a transaction without an answer is
unknown.
"""

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from logbrook.config.network import split_address
from logbrook.ports.metadata_store import StoreUnavailableError
from logbrook.server.etcd.grpc_client import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    GrpcCall,
    GrpcConnection,
    GrpcError,
    Headers,
)
from logbrook.server.etcd.messages import AuthenticateRequest, AuthenticateResponse

_CONNECT_S = 1.0
_UNAVAILABLE = (UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED)


@dataclass(frozen=True)
class EtcdCredentials:
    """TLS and authentication. `ca`, `certificate` and `key` are the paths of files in PEM format.

    With a `ca` connections use TLS; a certificate and its key identify this client. A user name and password are
    exchanged for a token.
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    username: str = ""
    password: str = ""

    def tls(self) -> ssl.SSLContext | None:
        """Raises OSError, also for a file that is not a certificate or key."""
        if self.ca is None:
            return None
        context = ssl.create_default_context(cafile=self.ca)
        context.set_alpn_protocols(["h2"])
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context


class EtcdEndpoints:
    """Used on one event loop. `addresses` are HOST:PORT. Raises OSError if the certificates cannot be read."""

    def __init__(self, addresses: Sequence[str], credentials: EtcdCredentials, timeout_s: float) -> None:
        self._addresses = tuple(addresses)
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._tls = credentials.tls()
        self._connections: dict[str, GrpcConnection] = {}
        self._connecting = asyncio.Lock()
        self._current = 0
        self._token: str | None = None
        self._is_closed = False

    async def call(self, method: str, request: Any, response: type[Any]) -> Any:
        """Send a request and return the response. Raises GrpcError or StoreUnavailableError."""
        for is_last in (False, True):
            async with await self.stream(method, response) as stream:
                try:
                    return await stream.request(request)
                except GrpcError as error:
                    if error.code == UNAUTHENTICATED and self._token is not None and not is_last:
                        # The token has expired; the request had no effect.
                        self._token = None
                        continue
                    raise
        raise AssertionError("the loop returns or raises")

    async def stream(self, method: str, response: type[Any]) -> "EtcdStream":
        """Open a stream of requests and responses. Raises GrpcError or StoreUnavailableError."""
        address, connection = await self._connected()
        headers = await self._headers(address, connection)
        return self._open(address, connection, method, response, headers)

    async def close(self) -> None:
        self._is_closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def use_next(self, address: str) -> None:
        """This member cannot be reached or did not answer in time."""
        if self._addresses[self._current] == address:
            self._current = (self._current + 1) % len(self._addresses)

    def on_error(self, address: str, error: GrpcError) -> None:
        """A request to this member has failed: use the next one, unless that would not help."""
        if error.code in _UNAVAILABLE or "etcdserver:" in error.details:
            self.use_next(address)

    def _open(
        self, address: str, connection: GrpcConnection, method: str, response: type[Any], headers: Headers
    ) -> "EtcdStream":
        """Raises StoreUnavailableError."""
        try:
            call = connection.open(f"/etcdserverpb.{method}", headers)
        except OSError as error:
            self.use_next(address)
            raise StoreUnavailableError(f"etcd at {address}: {error}") from None
        return EtcdStream(self, address, call, response, self._timeout_s)

    async def _connected(self) -> tuple[str, GrpcConnection]:
        """Return a member that is connected. Raises StoreUnavailableError after an attempt with each of them."""
        async with self._connecting:
            for _ in self._addresses:
                address = self._addresses[self._current]
                connection = self._connections.get(address)
                if connection is not None and connection.is_open:
                    return address, connection
                if self._is_closed:
                    raise StoreUnavailableError("the connection to etcd was closed")
                try:
                    async with asyncio.timeout(_CONNECT_S):
                        connection = await GrpcConnection.connect(*split_address(address), self._tls)
                except OSError:
                    self.use_next(address)
                    continue
                self._connections[address] = connection
                return address, connection
        raise StoreUnavailableError(f"no etcd endpoint of {', '.join(self._addresses)} can be reached")

    async def _headers(self, address: str, connection: GrpcConnection) -> Headers:
        """Return the headers of a request: the token, and that a member without a leader must not wait for one."""
        leader = ("hasleader", "true")
        if not self._credentials.username:
            return (leader,)
        if self._token is None:
            request = AuthenticateRequest(name=self._credentials.username, password=self._credentials.password)
            async with self._open(address, connection, "Auth/Authenticate", AuthenticateResponse, ()) as stream:
                self._token = str((await stream.request(request)).token)
        return (leader, ("token", self._token))


class EtcdStream:
    """An open stream to one member: `async with stream:`.

    Every call raises GrpcError, or StoreUnavailableError if the connection is lost or there is no answer in time.
    """

    def __init__(
        self, endpoints: EtcdEndpoints, address: str, call: GrpcCall, response: type[Any], timeout_s: float
    ) -> None:
        self._endpoints = endpoints
        self._address = address
        self._call = call
        self._response = response
        self._timeout_s = timeout_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._call.close()

    async def request(self, request: Any) -> Any:
        """Send the only request of the stream, and return its response."""
        await self.send(request, is_last=True)
        return await self.receive(self._timeout_s)

    async def send(self, request: Any, *, is_last: bool = False) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._call.send(request.SerializeToString(), is_last=is_last)
        except OSError as error:
            raise self._unavailable(error) from None

    async def receive(self, timeout_s: float | None = None) -> Any:
        """Return the next response."""
        try:
            async with asyncio.timeout(timeout_s):
                message = await self._call.receive()
        except OSError as error:
            raise self._unavailable(error) from None
        except GrpcError as error:
            self._endpoints.on_error(self._address, error)
            raise
        if message is None:
            raise StoreUnavailableError("etcd has closed the stream")
        return self._response.FromString(message)

    def _unavailable(self, error: OSError) -> StoreUnavailableError:
        self._endpoints.use_next(self._address)
        return StoreUnavailableError(f"etcd at {self._address}: {error or 'no answer in time'}")
