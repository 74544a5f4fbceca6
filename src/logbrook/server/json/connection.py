"""A client's connection on the JSON listener: as any other, but that it says why it hangs up, and hears the client out.

Where the stream of frames breaks nothing that follows can be understood. What came before is answered, then the reason
is sent, and our side is closed. What still comes is thrown away for a moment: hanging up on it would have the kernel
throw away the reason too.

A client may close its side when it has asked for all it wants, as `nc` does at the end of its input, and gets its
answers all the same, if they come soon: one that is gone altogether looks no different.

Answers are memory here, and no slices of files. So one that may be large is not written before it can be sent: when its
turn has come, and the client has taken those before it.
"""

import asyncio
from typing import TYPE_CHECKING, cast

from logbrook.server.connection import Connection, Host
from logbrook.server.json.dispatch import JsonDispatcher, JsonReceived

if TYPE_CHECKING:
    from logbrook.protocol.json_frames import JsonFrameReader

_LINGER_S = 2.0
_LAST_ANSWERS_S = 5.0


class JsonConnection(Connection):
    """One client. All of it runs on the event loop."""

    # Reading one may take as long as others should have to wait.
    BEGUN_PER_TURN_MAX = 1

    _dispatcher: JsonDispatcher
    _reader: "JsonFrameReader"

    __slots__ = ("_is_broken", "_is_client_done", "_lingering")

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop, dispatcher: JsonDispatcher) -> None:
        super().__init__(host, loop, dispatcher)
        self._is_broken = False
        self._is_client_done = False
        self._lingering: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
        super().connection_lost(exc)

    def eof_received(self) -> bool:
        if self._is_client_done or not (self._turns or self._queue):
            return self._is_client_done
        self._is_client_done = True
        if self._lingering is None:
            self._lingering = self._loop.call_later(_LAST_ANSWERS_S, self.abort)
        return True

    def close_when_done(self) -> None:
        if self._is_broken and self._lingering is not None:
            self.abort()
        else:
            super().close_when_done()

    def _process(self) -> None:
        super()._process()
        if self._turns and self._is_writable and not self._out:
            received = cast(JsonReceived | None, self._turns[0].received)
            if received is not None and received.may_be_written is not None:
                received.may_be_written.set()
        if self._is_client_done and not (self._turns or self._queue or self._out):
            # From here on it may take what it takes to send them; a client that takes nothing is stalled.
            assert self._lingering is not None
            self._lingering.cancel()
            self._transport.close()

    def _begin(self, frame: memoryview) -> None:
        if frame:
            super()._begin(frame)
            return
        error = self._reader.broken
        assert error is not None
        self._is_broken = self._is_closing = True
        self._note_protocol_error(error)
        self._begin_request(self._dispatcher.receive_broken(error))

    def _close_if_done(self) -> None:
        if not self._is_broken:
            super()._close_if_done()
        elif self._lingering is None and not (self._turns or self._out or self._transport.is_closing()):
            self._lingering = self._loop.call_later(_LINGER_S, self.abort)
            self._transport.write_eof()
            if not self._is_reading:
                self._is_reading = True
                self._transport.resume_reading()
