"""`logbrook serve --json-port`, as a process."""

import socket
from pathlib import Path

from logbrook.protocol.json_frames import RequestType
from tests.unit.server.json.json_kit import JsonPeer
from tests.unit.server.test_run import serving

STARTED = "json listener started listen="


def test_the_flag_opens_the_listener(tmp_path: Path) -> None:
    with serving(tmp_path, "--json-port", "0") as served:
        host, _, port = served.wait_for(STARTED).split(STARTED)[1].split()[0].rpartition(":")
        assert host == "127.0.0.1"
        peer = JsonPeer((host, int(port)))
        assert peer.ask(RequestType.PING) == {"pong": True}
        peer.socket.close()


def test_a_port_in_use_is_reported_with_a_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with serving(tmp_path, "--json-port", str(port)) as served:
            assert served.end() == 1
            assert f"127.0.0.1:{port} is in use" in served.said
            assert "--json-port" in served.said
