"""A broker with a JSON listener, and a client that sends and receives raw frames."""

import json
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from logbrook.protocol.json_frames import RequestType
from tests.unit.server.shell_kit import DEADLINE_S, Shell, receive_exactly

ERROR = 255
JSON_NETWORK = {"listen": "127.0.0.1:0", "json_listen": "127.0.0.1:0"}


def json_shell(settings: Mapping[str, Any] | None = None, **network: Any) -> Shell:
    return Shell({**(settings or {}), "network": {**JSON_NETWORK, **network}})


def frame_of(kind: int, payload: bytes | Mapping[str, Any] = b"") -> bytes:
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return struct.pack(">iB", 1 + len(body), kind) + body


class Answer(NamedTuple):
    kind: int
    fields: dict[str, Any]


class JsonPeer:
    def __init__(self, address: tuple[str, int], receive_buffer_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        self.socket.settimeout(DEADLINE_S)
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.connect(address)

    def send(self, kind: int, **fields: Any) -> None:
        self.socket.sendall(frame_of(kind, fields))

    def receive(self) -> Answer:
        """Return the next response. Raises EOFError if the broker has closed the connection."""
        length, kind = struct.unpack(">iB", receive_exactly(self.socket, 5))
        return Answer(kind, json.loads(receive_exactly(self.socket, length - 1)))

    def ask(self, request_type: RequestType, **fields: Any) -> dict[str, Any]:
        self.send(request_type, **fields)
        kind, answer = self.receive()
        assert kind == request_type | 128, answer
        return answer

    def refused(self, request_type: RequestType, **fields: Any) -> dict[str, Any]:
        self.send(request_type, **fields)
        kind, answer = self.receive()
        assert kind == ERROR, answer
        return answer

    def produce(self, topic: str, *values: str, partition: int = 0) -> int:
        records = [{"value": value} for value in values]
        base_offset: int = self.ask(RequestType.PRODUCE, topic=topic, partition=partition, records=records)[
            "base_offset"
        ]
        return base_offset

    def fetch(self, topic: str, offset: int | str = 0, **how: Any) -> dict[str, Any]:
        return self.ask(RequestType.FETCH, topic=topic, partition=0, offset=offset, **how)


@contextmanager
def json_peer(shell: Shell, receive_buffer_bytes: int | None = None) -> Iterator[JsonPeer]:
    assert shell.broker.json_address is not None
    peer = JsonPeer(shell.broker.json_address, receive_buffer_bytes)
    try:
        yield peer
    finally:
        peer.socket.close()


def values_of(fetched: Mapping[str, Any]) -> Sequence[Any]:
    return [record["value"] for record in fetched["records"]]
