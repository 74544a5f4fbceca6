"""A proxy for Thrift that passes a chosen call on, waits for its answer and then loses it: the call took effect."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from selectors import EVENT_READ, DefaultSelector
from threading import Event, Lock, Thread

from tests.object_store.losing_proxy import Loss

_CHUNK_BYTES = 1 << 16
_UPSTREAM_S_MAX = 30.0


class ThriftProxy:
    """Listens at `address`. A client sends each call with one write, which begins with the name of the method."""

    def __init__(self, upstream: str) -> None:
        host, _, port = upstream.partition(":")
        self._upstream = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = Lock()
        self._next: tuple[bytes, Loss] | None = None
        self._lost: list[str] = []
        self._ended = Event()
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def lose(self, method: str, loss: Loss) -> None:
        """Lose the answer of the next call of `method`."""
        with self._lock:
            self._next = (method.encode(), loss)

    def lost(self) -> list[str]:
        """Return the methods whose answers were lost."""
        with self._lock:
            return list(self._lost)

    @contextmanager
    def running(self) -> Iterator["ThriftProxy"]:
        accepting = Thread(target=self._accept, daemon=True)
        accepting.start()
        try:
            yield self
        finally:
            self._ended.set()
            # Closing alone does not wake the thread that waits in accept.
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            accepting.join(_UPSTREAM_S_MAX)

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Pass calls on one by one: a client waits for the answer of each before it sends the next."""
        with (
            client,
            socket.create_connection(self._upstream, timeout=_UPSTREAM_S_MAX) as server,
            DefaultSelector() as selector,
            suppress(OSError),
        ):
            selector.register(client, EVENT_READ, client)
            selector.register(server, EVENT_READ, server)
            while readable := selector.select(_UPSTREAM_S_MAX):
                source = readable[0][0].data
                content = source.recv(_CHUNK_BYTES)
                if not content:
                    return
                if source is server:
                    client.sendall(content)
                    continue
                loss = self._loss_of(content)
                server.sendall(content)
                if loss is not None:
                    server.recv(_CHUNK_BYTES)
                    if loss is Loss.SILENCE:
                        self._ended.wait(_UPSTREAM_S_MAX)
                    return

    def _loss_of(self, request: bytes) -> Loss | None:
        with self._lock:
            # The name has its length before it: `lock` is not `unlock`.
            if self._next is None or len(self._next[0]).to_bytes(4) + self._next[0] not in request:
                return None
            method, loss = self._next
            self._next = None
            self._lost.append(method.decode())
            return loss
