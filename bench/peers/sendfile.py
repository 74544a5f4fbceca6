"""The physical reference of consuming: `sendfile` of the same bytes over loopback TCP, from a loop in Python.

The sender is a process of its own whose CPU time is measured. It sends the segment files that a consumer has read, in
turns and 1 MiB at a time as a consumer fetches them, to a process that only receives. No broker can take less CPU time
for the same bytes, except by sending fewer.

python -m bench.peers.sendfile SECONDS FILE...
"""

import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

_ROOT = Path(__file__).parents[2]
_CHUNK_BYTES = 1 << 20
_RUN_S_MAX = 120.0


class Sent(NamedTuple):
    bytes: int
    took_s: float
    cpu_s: float


def measure_sendfile(files: list[Path], seconds: float) -> Sent:
    """Send the files again and again for about `seconds`, in a new process."""
    command = [sys.executable, "-m", "bench.peers.sendfile", str(seconds), *map(str, files)]
    done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, timeout=seconds + _RUN_S_MAX, check=True)
    return Sent(**json.loads(done.stdout))


def send(files: list[Path], seconds: float) -> Sent:
    """Send to a receiver in a process of its own. Only the CPU time of this process counts."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-m", "bench.peers.sendfile", "receive", str(server.getsockname()[1])]
        with subprocess.Popen(command, cwd=_ROOT) as receiver:
            connection, _ = server.accept()
            with connection:
                chunks = _chunks(files)
                sent = 0
                started_s, before_s = time.monotonic(), _cpu_s()
                while time.monotonic() < started_s + seconds:
                    descriptor, position, size = next(chunks)
                    sent += os.sendfile(connection.fileno(), descriptor, position, size)
                took_s, cpu_s = time.monotonic() - started_s, _cpu_s() - before_s
            receiver.wait(_RUN_S_MAX)
    return Sent(sent, took_s, cpu_s)


def receive(port: int) -> None:
    memory = bytearray(_CHUNK_BYTES)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while connection.recv_into(memory):
            pass


def _chunks(files: list[Path]) -> Iterator[tuple[int, int, int]]:
    """Yield descriptor, position and size: a chunk of each file in turn, and from the beginning after the last."""
    opened = [(os.open(path, os.O_RDONLY), path.stat().st_size) for path in files if path.stat().st_size]
    position = 0
    size_max = max(size for _, size in opened)
    for descriptor, size in cycle(opened):
        if position < size:
            yield descriptor, position, min(_CHUNK_BYTES, size - position)
        if descriptor == opened[-1][0]:
            position = (position + _CHUNK_BYTES) % (-(-size_max // _CHUNK_BYTES) * _CHUNK_BYTES)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(int(sys.argv[2]))
    else:
        print(json.dumps(send([Path(name) for name in sys.argv[2:]], float(sys.argv[1]))._asdict()))
