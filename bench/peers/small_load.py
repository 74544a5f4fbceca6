"""Single-record Produce requests from many connections, one in flight on each, in a compiled loop.

The requests are encoded beforehand. The loop is compiled by Numba and calls epoll_wait, send and recv of the C library,
so that nearly all of the CPU time is the broker's. Every response must have the size of the first one of its
connection, which is checked in full, and no error code.
"""

import ctypes
import platform
import select
import socket
import struct
import time
from contextlib import ExitStack
from functools import cache
from typing import Any

import numba
import numpy as np

from bench.peers.load import Job, LoadError, Spent, spending
from bench.peers.system import process_cpu_s
from logbrook.protocol.encoding import encode
from logbrook.protocol.framing import RequestStart, frame_request
from logbrook.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from logbrook.records.builder import build_batch
from logbrook.records.record import Record

_VERSION = 11
_WAIT_MS_MAX = 30_000
_EVENTS_MAX = 256
# The kernel's `epoll_event` in words of 32 bits: events and descriptor, packed on x86 only.
_IS_PACKED = platform.machine() in ("x86_64", "AMD64")
_EVENT_WORDS, _DESCRIPTOR_WORD = (3, 1) if _IS_PACKED else (4, 2)
_NO_SIGNAL = socket.MSG_NOSIGNAL
_RESPONSE_BYTES_MAX = 1_000
# Before the error code of a response: size, correlation id, tags, the number of topics, the length of the topic's name,
# the number of partitions and the index of the partition.
_BEFORE_NAME = 4 + 4 + 1 + 1 + 1
_AFTER_NAME = 1 + 4
_FAILED_WAIT, _FAILED_SEND, _FAILED_RESPONSE = -1, -2, -3


def send_small_requests(job: Job) -> Spent:
    """Send `count` requests over `connections` connections; opening them is not part of the result."""
    request = _frame(job)
    frame = np.frombuffer(request, dtype=np.uint8)
    exchange = _exchange()
    with ExitStack() as stack:
        epoll = stack.enter_context(select.epoll())
        connections = [stack.enter_context(_connected(job)) for _ in range(job.connections)]
        response = np.zeros(
            min(_answered(connection, request, job.topic) for connection in connections), dtype=np.uint8
        )
        missing = np.full(1 + max(connection.fileno() for connection in connections), len(response), dtype=np.int64)
        for connection in connections:
            epoll.register(connection, select.EPOLLIN)
        error_at = _BEFORE_NAME + len(job.topic) + _AFTER_NAME
        count = max(job.count, len(connections))
        cpu_s = process_cpu_s(job.pid)
        with spending(count) as spent:
            for connection in connections:
                connection.sendall(request)
            done = exchange(epoll.fileno(), missing, len(connections), frame, response, error_at, count)
        spent.server_cpu_s = process_cpu_s(job.pid) - cpu_s
    if done < 0:
        reason = {_FAILED_WAIT: "no response in time", _FAILED_SEND: "a request could not be sent"}
        raise LoadError(reason.get(done, "a response has another size or an error code"))
    return spent


def get_ready() -> None:
    """Compile the loop in advance."""
    nothing, frame = np.zeros(0, dtype=np.int64), np.frombuffer(b"-", dtype=np.uint8)
    _exchange()(-1, nothing, 0, frame, np.zeros(1, dtype=np.uint8), 0, 0)


def _connected(job: Job) -> socket.socket:
    connection = socket.create_connection((job.host, job.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _frame(job: Job) -> bytes:
    batch = bytes(build_batch([Record(value=bytes(job.size), timestamp=int(1000 * time.time()))]))
    data = [TopicProduceData(name=job.topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data)
    start = RequestStart(request.API_KEY, _VERSION, 1)
    return b"".join(frame_request(start, "bench", encode(request, _VERSION), has_tags=True))


def _answered(connection: socket.socket, request: bytes, topic: str) -> int:
    """Send one request and return the size of its response. Raises LoadError if it has an error code."""
    connection.sendall(request)
    response = connection.recv(_RESPONSE_BYTES_MAX)
    (size,) = struct.unpack_from(">i", response)
    (error,) = struct.unpack_from(">h", response, _BEFORE_NAME + len(topic) + _AFTER_NAME)
    if size + 4 != len(response) or topic.encode() not in response or error:
        raise LoadError(f"a request was answered with error code {error}: {response!r}")
    return len(response)


@cache
def _answer() -> Any:
    """Return a compiled function that receives, and sends the next request if the response is whole and one is left.

    It returns the bytes that are still missing of the response, or a negative number.
    """
    library = ctypes.CDLL(None)
    recv, send = library.recv, library.send
    for call in (recv, send):
        call.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        call.restype = ctypes.c_ssize_t

    @numba.njit
    def answer(descriptor: int, missing: int, frame: Any, response: Any, error_at: int, is_last: bool) -> Any:
        got = recv(descriptor, response.ctypes, missing, 0)
        # A response in parts is rare; the error code is looked at where it is whole.
        is_whole = got == len(response)
        if got <= 0 or (is_whole and (response[error_at] or response[error_at + 1])):
            return _FAILED_RESPONSE
        if got == missing and not is_last and send(descriptor, frame.ctypes, len(frame), _NO_SIGNAL) != len(frame):
            return _FAILED_SEND
        return missing - got

    return answer


@cache
def _exchange() -> Any:
    """Return the compiled loop: (epoll, missing, sent, frame, response, position of the error code, count) -> count.

    `missing` has the bytes that are missing of the response of each descriptor; `sent` requests are in flight.
    """
    wait, answer = ctypes.CDLL(None).epoll_wait, _answer()
    wait.argtypes, wait.restype = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int), ctypes.c_int

    @numba.njit
    def exchange(epoll: int, missing: Any, sent: int, frame: Any, response: Any, error_at: int, count: int) -> Any:
        events = np.zeros(_EVENTS_MAX * _EVENT_WORDS, dtype=np.int32)
        answered = 0
        while answered < count:
            ready = wait(epoll, events.ctypes, _EVENTS_MAX, _WAIT_MS_MAX)
            if ready <= 0:
                return _FAILED_WAIT
            for event in range(ready):
                descriptor = events[event * _EVENT_WORDS + _DESCRIPTOR_WORD]
                left = answer(descriptor, missing[descriptor], frame, response, error_at, sent >= count)
                if left < 0:
                    return left
                if left == 0:
                    answered += 1
                    sent += 1
                    left = len(response)
                missing[descriptor] = left
        return answered

    return exchange
