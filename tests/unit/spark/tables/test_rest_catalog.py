"""Requests to a REST catalog of Iceberg tables end, whatever the server does."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from requests import PreparedRequest
from requests.adapters import HTTPAdapter
from requests.exceptions import ConnectTimeout, ReadTimeout

from logbrook.spark.tables.format import TableOptions, open_format
from logbrook.spark.tables.rest_catalog import CONNECTION_TIMEOUT, SOCKET_TIMEOUT


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Accept connections and answer nothing."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def rest_table(directory: Path, address: str, **properties: Any) -> Any:
    options = {"path": str(directory / "t"), "table.format": "iceberg", "iceberg.catalog.type": "rest"}
    options["iceberg.catalog.uri"] = f"http://{address}"
    options |= {f"iceberg.catalog.{name}": str(value) for name, value in properties.items()}
    return open_format(TableOptions.parse(options))


def test_a_catalog_that_does_not_answer_is_given_up(silent_server: str, tmp_path: Path) -> None:
    table = rest_table(tmp_path, silent_server, **{SOCKET_TIMEOUT: 100})
    with pytest.raises(ReadTimeout, match=r"read timeout=0\.1"):
        table.load()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_so_is_the_request_for_a_token(silent_server: str, tmp_path: Path) -> None:
    table = rest_table(tmp_path, silent_server, credential="me:secret", **{SOCKET_TIMEOUT: 100})
    with pytest.raises(ReadTimeout) as raised:
        table.load()
    request = raised.value.request
    assert request is not None
    assert str(request.url).endswith("/v1/oauth/tokens")


def test_connecting_has_a_limit_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits_s = []

    def send(adapter: HTTPAdapter, request: PreparedRequest, **arguments: Any) -> None:
        del adapter, request
        limits_s.append(arguments["timeout"])
        raise ConnectTimeout

    monkeypatch.setattr(HTTPAdapter, "send", send)
    with pytest.raises(ConnectTimeout):
        rest_table(tmp_path, "127.0.0.1:1", **{CONNECTION_TIMEOUT: 100}).load()
    assert limits_s == [(0.1, 60.0)]


def test_tables_without_a_rest_catalog_do_not_load_its_client() -> None:
    """Spark starts a process for each commit."""
    check = "import sys, logbrook.spark.tables.iceberg; sys.exit('pyiceberg.catalog.rest' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", check], env=environment, timeout=120, check=False).returncode == 0
