"""Connections to the members of an etcd cluster.

Requests go to one member at a time. If it cannot be reached, does not answer in time, or has no leader, the next one is
used from then on. A request is sent once: the caller has to know that the outcome of a transaction without an answer is
unknown.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from grpc.aio import AioRpcError, Channel, StreamStreamCall

from logbrook.ports.metadata_store import StoreUnavailableError
from logbrook.server.etcd.messages import AuthenticateRequest, AuthenticateResponse

# Pings find a member that is gone without closing its connections. etcd refuses more than one in 5 s.
_OPTIONS = (
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_retries", 0),
)
_CONNECT_S = 1.0
_UNAVAILABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


@dataclass(frozen=True)
class EtcdCredentials:
    """TLS and authentication. Certificates and the key are in PEM format.

    With a `ca` connections use TLS; a certificate and its key identify this client. A user name and password are
    exchanged for a token.
    """

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    username: str = ""
    password: str = ""


class EtcdEndpoints:
    """Used on one event loop. `addresses` are HOST:PORT."""

    def __init__(self, addresses: Sequence[str], credentials: EtcdCredentials, timeout_s: float) -> None:
        self._addresses = tuple(addresses)
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._channels: dict[str, Channel] = {}
        self._current = 0
        self._token: str | None = None

    async def call(self, method: str, request: Any, response: type[Any]) -> Any:
        """Send a request and return the response. Raises AioRpcError, or StoreUnavailableError if it was not sent."""
        for is_last in (False, True):
            address, channel = await self._connected()
            metadata = await self._metadata(channel)
            send = channel.unary_unary(
                f"/etcdserverpb.{method}",
                request_serializer=_serialize,
                response_deserializer=response.FromString,
            )
            try:
                return await send(request, timeout=self._timeout_s, metadata=metadata)
            except AioRpcError as error:
                if error.code() is grpc.StatusCode.UNAUTHENTICATED and self._token is not None and not is_last:
                    # The token has expired; the request had no effect.
                    self._token = None
                    continue
                self.on_error(address, error)
                raise
        raise AssertionError("the loop returns or raises")

    async def stream(self, method: str, response: type[Any]) -> "EtcdStream":
        """Open a stream of requests and responses. Raises StoreUnavailableError or AioRpcError."""
        address, channel = await self._connected()
        metadata = await self._metadata(channel)
        open_stream = channel.stream_stream(
            f"/etcdserverpb.{method}", request_serializer=_serialize, response_deserializer=response.FromString
        )
        return EtcdStream(self, address, open_stream(metadata=metadata))

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    def on_timeout(self) -> None:
        """The current member did not answer in time."""
        self._current = (self._current + 1) % len(self._addresses)

    def on_error(self, address: str, error: AioRpcError) -> None:
        """A request to this member has failed: use the next one, unless that would not help."""
        is_current = self._addresses[self._current] == address
        if is_current and (error.code() in _UNAVAILABLE or "etcdserver:" in (error.details() or "")):
            self.on_timeout()

    async def _connected(self) -> tuple[str, Channel]:
        """Return a member that is connected. Raises StoreUnavailableError after an attempt with each of them."""
        for _ in self._addresses:
            address = self._addresses[self._current]
            channel = self._channels.get(address)
            if channel is None:
                channel = self._channels[address] = self._open(address)
            if await _is_ready(channel):
                return address, channel
            self.on_timeout()
        raise StoreUnavailableError(f"no etcd endpoint of {', '.join(self._addresses)} can be reached")

    def _open(self, address: str) -> Channel:
        credentials = self._credentials
        if credentials.ca is None:
            return grpc.aio.insecure_channel(address, options=_OPTIONS)
        tls = grpc.ssl_channel_credentials(credentials.ca, credentials.key, credentials.certificate)
        return grpc.aio.secure_channel(address, tls, options=_OPTIONS)

    async def _metadata(self, channel: Channel) -> tuple[tuple[str, str], ...]:
        """Return the headers of a request: the token, and that a member without a leader must not wait for one."""
        leader = (("hasleader", "true"),)
        if not self._credentials.username:
            return leader
        if self._token is None:
            authenticate = channel.unary_unary(
                "/etcdserverpb.Auth/Authenticate",
                request_serializer=_serialize,
                response_deserializer=AuthenticateResponse.FromString,
            )
            request = AuthenticateRequest(name=self._credentials.username, password=self._credentials.password)
            answer: Any = await authenticate(request, timeout=self._timeout_s)
            self._token = answer.token
        return (*leader, ("token", str(self._token)))


class EtcdStream:
    """An open stream to one member."""

    def __init__(self, endpoints: EtcdEndpoints, address: str, call: "StreamStreamCall[Any, Any]") -> None:
        self._endpoints = endpoints
        self._address = address
        self._call = call

    async def send(self, request: Any) -> None:
        """Raises AioRpcError."""
        await self._call.write(request)

    async def receive(self, timeout_s: float | None = None) -> Any:
        """Return the next response. Raises AioRpcError, or StoreUnavailableError at its end and after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._call.read()
        except TimeoutError:
            self._endpoints.on_timeout()
            raise StoreUnavailableError("etcd did not answer in time") from None
        except AioRpcError as error:
            self._endpoints.on_error(self._address, error)
            raise
        if response is grpc.aio.EOF:
            raise StoreUnavailableError("etcd has closed the connection")
        return response

    def close(self) -> None:
        self._call.cancel()


async def _is_ready(channel: Channel) -> bool:
    try:
        async with asyncio.timeout(_CONNECT_S):
            await channel.channel_ready()
    except TimeoutError:
        return False
    return True


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
