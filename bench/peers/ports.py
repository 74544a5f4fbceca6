"""Where a server can listen."""

import socket

HOST = "127.0.0.1"


def free_address() -> str:
    with socket.create_server((HOST, 0)) as probe:
        return f"{HOST}:{probe.getsockname()[1]}"
