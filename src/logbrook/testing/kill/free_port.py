"""A port that stays free while the broker is down.

The kernel gives outgoing connections ports of a range of its own. A client that keeps trying to reach a dead broker in
that range would be given the broker's port one day: it would be connected to itself, and the broker could not come
back. So the port is from below the range.
"""

import socket
from random import SystemRandom

_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
_FIRST_OUTGOING = 32_768
_LOWEST = 20_000
_TRIES = 200


def free_port() -> int:
    """Raises OSError if there is none."""
    rng = SystemRandom()
    end = max(_LOWEST + 1, _first_outgoing_port())
    for _ in range(_TRIES):
        port = rng.randrange(_LOWEST, end)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"found no free port from {_LOWEST} to {end - 1}")


def _first_outgoing_port() -> int:
    try:
        with open(_RANGE) as file:
            return int(file.read().split()[0])
    except (OSError, ValueError):
        return _FIRST_OUTGOING
