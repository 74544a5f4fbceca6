"""Bytes to and from a broker over a bare socket, for requests that no client library would send."""

import socket
from contextlib import suppress

from logbrook.protocol.framing import RequestStart, frame_request
from logbrook.protocol.schema import ApiMessage
from tests.unit.protocol.every_message import encoded

_LENGTH_BYTES = 4


def request_frame(message: ApiMessage, version: int, correlation_id: int = 1, *, body: bytes | None = None) -> bytes:
    """Return a request frame; the body may be another than the message's."""
    start = RequestStart(message.API_KEY, version, correlation_id)
    content = encoded(message, version) if body is None else body
    return b"".join(frame_request(start, "hostile", [content], has_tags=version >= message.FLEXIBLE_SINCE))


def raw_frame(api_key: int, version: int, body: bytes = b"", *, size: int | None = None) -> bytes:
    """Return a frame that need not be a valid request, and whose length field may be wrong."""
    content = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + bytes(4) + body
    return (len(content) if size is None else size).to_bytes(4, "big", signed=True) + content


def receive_frame(connected: socket.socket) -> bytes | None:
    """Return the next response without its length; None if the broker has closed the connection."""
    size = _receive(connected, _LENGTH_BYTES)
    return None if size is None else _receive(connected, int.from_bytes(size, "big"))


def is_hung_up_on(connected: socket.socket) -> bool:
    """Return True if the broker closes the connection, and False if it sends a response first."""
    try:
        return connected.recv(1) == b""
    except ConnectionError:
        return True


def all_answers(connected: socket.socket) -> list[bytes]:
    """Close the sending side, and return everything the broker sends until it closes the connection."""
    answers: list[bytes] = []
    # The broker may have closed the connection already.
    with suppress(OSError):
        connected.shutdown(socket.SHUT_WR)
    while (frame := receive_frame(connected)) is not None:
        answers.append(frame)
    return answers


def _receive(connected: socket.socket, size: int) -> bytes | None:
    received = b""
    while len(received) < size:
        try:
            more = connected.recv(size - len(received))
        except ConnectionResetError:
            return None
        if not more:
            return None
        received += more
    return received
