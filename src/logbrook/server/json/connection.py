"""A client's connection on the JSON listener: a `ServerConnection` that explains why it closes.

After a broken frame nothing that follows can be parsed. Earlier requests are answered, then an error frame gives the
reason, and the sending side is closed. Further input is discarded for `_LINGER_S`: closing at once would make the
kernel reset the connection and drop the error frame. TLS has no half-closed connections: there, closing does the same.

A client may close its sending side after its last request, as `nc` does at the end of its input, and still gets its
responses if they are ready within `_LAST_RESPONSES_S`. The limit is needed because a client that has closed the whole
connection cannot be distinguished.

While a client authenticates, its further requests wait.

Responses are in memory here, not slices of files. One that may be large is produced only when it can be sent: when the
responses before it are sent and the client has read them.
"""

import asyncio
from typing import TYPE_CHECKING, cast

from logbrook.server.connection import ServerConnection
from logbrook.server.connection_contract import ConnectionRegistry
from logbrook.server.json.dispatch import DecodedJsonRequest, JsonDispatcher

if TYPE_CHECKING:
    from logbrook.protocol.json_frames import JsonFrameReader

_LINGER_S = 2.0
_LAST_RESPONSES_S = 5.0


class JsonConnection(ServerConnection):
    """One client of the JSON protocol. Runs on the event loop."""

    # Decoding a single request may take as long as other connections should have to wait.
    STARTED_PER_TURN_MAX = 1

    _dispatcher: JsonDispatcher
    _reader: "JsonFrameReader"

    __slots__ = ("_is_broken", "_is_client_done", "_lingering")

    def __init__(
        self, registry: ConnectionRegistry, loop: asyncio.AbstractEventLoop, dispatcher: JsonDispatcher
    ) -> None:
        super().__init__(registry, loop, dispatcher)
        self._is_broken = False
        self._is_client_done = False
        self._lingering: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
        super().connection_lost(exc)

    @property
    def _has_room(self) -> bool:
        return not self._session.is_authenticating and super()._has_room

    def eof_received(self) -> bool:
        if not self._transport.can_write_eof():
            # TLS has no half-closed connections.
            return False
        if self._is_client_done or not (self._pending or self._queue):
            return self._is_client_done
        self._is_client_done = True
        if self._lingering is None:
            self._lingering = self._loop.call_later(_LAST_RESPONSES_S, self.abort)
        return True

    def close_when_done(self) -> None:
        if self._is_broken and self._lingering is not None:
            self.abort()
        else:
            super().close_when_done()

    def _process(self) -> None:
        super()._process()
        if self._pending and self._output.is_writable and not self._output.out_bytes:
            received = cast(DecodedJsonRequest | None, self._pending[0].request)
            if received is not None and received.can_send is not None:
                received.can_send.set()
        if self._is_client_done and not (self._pending or self._queue or self._output.out_bytes):
            # The responses are complete; from here on the check for stalled connections limits how long sending takes.
            assert self._lingering is not None
            self._lingering.cancel()
            self._transport.close()

    def _start(self, frame: memoryview) -> None:
        if frame:
            super()._start(frame)
            return
        error = self._reader.broken
        assert error is not None
        self._is_broken = self._is_closing = True
        self._note_protocol_error(error)
        self._start_request(self._dispatcher.receive_broken(error))

    def _close_if_done(self) -> None:
        if not self._is_broken:
            super()._close_if_done()
        elif self._lingering is None and not (self._pending or self._output.out_bytes or self._transport.is_closing()):
            self._lingering = self._loop.call_later(_LINGER_S, self.abort)
            if not self._transport.can_write_eof():
                self._transport.close()
                return
            self._transport.write_eof()
            if not self._is_reading:
                self._is_reading = True
                self._transport.resume_reading()
