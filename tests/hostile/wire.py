"""Bytes to and from a broker over a bare socket, for what no client would send."""

import socket
from contextlib import suppress

from logbrook.protocol.framing import RequestStart, frame_request
from logbrook.protocol.schema import ApiMessage
from tests.unit.protocol.every_message import encoded

_LENGTH_BYTES = 4


def request_frame(message: ApiMessage, version: int, correlation_id: int = 1, *, body: bytes | None = None) -> bytes:
    """A request with its header and length, whose body may be another than the message's."""
    start = RequestStart(message.API_KEY, version, correlation_id)
    content = encoded(message, version) if body is None else body
    return b"".join(frame_request(start, "hostile", [content], has_tags=version >= message.FLEXIBLE_SINCE))


def raw_frame(api_key: int, version: int, body: bytes = b"", *, size: int | None = None) -> bytes:
    """A frame of a request that need not be one, and that may say that it is longer than it is."""
    content = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + bytes(4) + body
    return (len(content) if size is None else size).to_bytes(4, "big", signed=True) + content


def receive_frame(connected: socket.socket) -> bytes | None:
    """The next answer without its length; None when the broker has hung up."""
    size = _receive(connected, _LENGTH_BYTES)
    return None if size is None else _receive(connected, int.from_bytes(size, "big"))


def is_hung_up_on(connected: socket.socket) -> bool:
    """Wait for the broker to say something or to hang up, and tell whether it was the latter."""
    try:
        return connected.recv(1) == b""
    except ConnectionError:
        return True


def all_answers(connected: socket.socket) -> list[bytes]:
    """Everything that the broker says until it hangs up, which it does once it has been told that there is no more."""
    answers: list[bytes] = []
    # It may have hung up already.
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
