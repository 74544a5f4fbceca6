"""The load for Redis Streams: `redis-benchmark` produces, redis-py consumes and measures latency.

A partition is a stream with its own key. `redis-benchmark` picks the key of each message at random and always sends the
same message, whose content does not matter to Redis.
"""

import importlib
import socket
import subprocess
import time
from collections import deque
from threading import Event, Thread
from typing import Any

from bench.peers.load import (
    RETRY_S,
    WAIT_S_MAX,
    Job,
    Load,
    LoadError,
    Spent,
    age_ms,
    messages,
    paced,
    quantiles,
    spending,
    stamped,
)

_CLIENTS = 8
_PIPELINED = 128
_READ_COUNT = 1_000
_READ_BYTES_MAX = 4_000_000
_BLOCK_MS = 20_000


class RedisLoad(Load):
    def ready(self, job: Job) -> None:
        super().ready(job)
        _redis()

    def create(self, job: Job) -> None:
        """No operation: the first message creates a stream."""

    def delete(self, job: Job) -> None:
        connection = _connect(job)
        try:
            _execute(connection, "UNLINK", *_keys(job))
        finally:
            connection.disconnect()

    def produce(self, job: Job) -> Spent:
        in_flight = _CLIENTS * _PIPELINED
        count = -(-job.count // in_flight) * in_flight
        command = ["redis-benchmark", "-h", job.host, "-p", str(job.port), "-c", str(_CLIENTS), "-P", str(_PIPELINED)]
        key = _keys(job)[0]
        if job.partitions > 1:
            command += ["-r", str(job.partitions)]
            key = f"{job.topic}:__rand_int__"
        command += ["-n", str(count), "--csv", "-x", "XADD", key, "*", "v"]
        message = messages(job.size)[0]
        with spending(count) as spent:
            done = subprocess.run(command, input=message, capture_output=True, check=False)
        if done.returncode != 0 or b"error" in done.stderr.lower():
            raise LoadError(done.stderr.decode(errors="replace")[-300:])
        # CSV columns after the test's name, which contains the message: requests per second and six latencies.
        per_s = float(done.stdout.decode().strip().rsplit('","', 7)[1])
        spent.started_s = spent.ended_s - count / per_s
        return spent

    def consume(self, job: Job) -> Spent:
        connection = _connect(job)
        last = dict.fromkeys(_keys(job), b"0")
        count = max(1, min(_READ_COUNT, _READ_BYTES_MAX // job.size // job.partitions))
        try:
            with spending(job.count) as spent:
                remaining = job.count
                while remaining > 0:
                    streams = _execute(connection, "XREAD", "COUNT", count, "STREAMS", *last, *last.values())
                    if not streams:
                        raise LoadError(f"{remaining} messages did not arrive")
                    for key, entries in streams:
                        last[key.decode()] = entries[-1][0]
                        remaining -= len(entries)
        finally:
            connection.disconnect()
        return spent

    def acknowledged(self, job: Job) -> dict[str, float]:
        """Measure with a second thread that receives: replies have the order of the requests."""
        connection = _connect(job)
        packed = connection.pack_command("XADD", _keys(job)[0], "*", "v", messages(job.size)[0])
        request = b"".join(packed)
        sent: deque[float] = deque()
        latencies: list[float] = []
        errors: list[Exception] = []

        def listen() -> None:
            try:
                for _ in range(job.count):
                    connection.read_response()
                    latencies.append(1_000 * (time.monotonic() - sent.popleft()))
            except Exception as error:
                errors.append(error)

        listener = Thread(target=listen, daemon=True)
        listener.start()
        started = time.monotonic()
        for due in paced(job.count, job.rate):
            sent.extend([time.monotonic()] * due)
            connection.send_packed_command([request * due])
        took_s = time.monotonic() - started
        listener.join(WAIT_S_MAX)
        connection.disconnect()
        if len(latencies) != job.count:
            raise LoadError(f"{job.count - len(latencies)} messages were not acknowledged: {errors}")
        return quantiles(latencies, took_s)

    def send_stamped(self, job: Job) -> None:
        connection = _connect(job)
        value = messages(job.size)[0]
        for due in paced(job.count, job.rate):
            connection.send_packed_command(
                connection.pack_commands([("XADD", _keys(job)[0], "*", "v", stamped(value))] * due)
            )
        # Replies are read at the end, so that no message waits for the reply before it; they fit into the socket
        # buffer.
        for _ in range(job.count):
            connection.read_response()
        connection.disconnect()

    def receive_stamped(self, job: Job) -> dict[str, float]:
        connection = _connect(job)
        last: bytes = b"0"
        ages: list[float] = []
        started = time.monotonic()
        while len(ages) < job.count:
            streams = _execute(
                connection, "XREAD", "COUNT", _READ_COUNT, "BLOCK", _BLOCK_MS, "STREAMS", _keys(job)[0], last
            )
            if not streams:
                raise LoadError(f"{job.count - len(ages)} messages did not arrive")
            entries = streams[0][1]
            last = entries[-1][0]
            ages += [age_ms(fields[1]) for _id, fields in entries]
        took_s = time.monotonic() - started
        connection.disconnect()
        return quantiles(ages, took_s)

    def wait_for_ack(self, job: Job) -> None:
        """Retry while the server does not listen yet or answers LOADING."""
        redis = _redis()
        until = time.monotonic() + WAIT_S_MAX
        pause = Event()
        while True:
            connection = _connection(job)
            try:
                connection.connect()
                _execute(connection, "XADD", _keys(job)[0], "*", "v", messages(job.size)[0])
                return
            except (redis.exceptions.ConnectionError, redis.exceptions.BusyLoadingError) as error:
                if time.monotonic() > until:
                    raise LoadError(str(error)) from error
                pause.wait(RETRY_S)
            finally:
                connection.disconnect()

    def connect_and_ping(self, job: Job) -> socket.socket:
        connection = socket.create_connection((job.host, job.port), 10.0)
        connection.sendall(b"PING\r\n")
        if not connection.recv(64).startswith(b"+PONG"):
            connection.close()
            raise ConnectionError("closed or refused before the reply")
        return connection


def _redis() -> Any:
    """Import the client, which is in the optional extra `bench`."""
    return importlib.import_module("redis")


def _connection(job: Job) -> Any:
    # RESP2 returns plain lists, which are cheaper to parse.
    return _redis().Connection(host=job.host, port=job.port, protocol=2, socket_timeout=WAIT_S_MAX)


def _connect(job: Job) -> Any:
    connection = _connection(job)
    connection.connect()
    return connection


def _execute(connection: Any, *command: object) -> Any:
    connection.send_command(*command)
    return connection.read_response()


def _keys(job: Job) -> list[str]:
    """Return the keys in the format of `redis-benchmark`'s __rand_int__."""
    return [f"{job.topic}:{number:012d}" for number in range(job.partitions)]
