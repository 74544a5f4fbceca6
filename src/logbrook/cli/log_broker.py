"""Maintenance of a running broker, through its port for operators."""

import json
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from logbrook.cli.failures import fail, refuse

Broker = Annotated[
    str | None,
    typer.Option(
        "--broker", metavar="URL", help="A running broker's port for operators, such as http://127.0.0.1:9644."
    ),
]

_CONNECT_S = 3.0
_OK = 200


def run_maintenance(url: str) -> dict[str, Any]:
    """A checkpoint and one round of retention and compaction, now. Returns what it did; ends the command if it was not
    done."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        refuse("--broker", f"{url!r} is no URL such as http://127.0.0.1:9644")
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    try:
        with closing(kind(parts.hostname, parts.port, timeout=_CONNECT_S)) as connection:
            connection.connect()
            # Nobody knows how long a compaction takes.
            connection.sock.settimeout(None)
            connection.request("POST", f"{parts.path.rstrip('/')}/maintenance")
            response = connection.getresponse()
            status, body = response.status, response.read()
    except (OSError, HTTPException, ValueError) as error:
        told = getattr(error, "strerror", None) or str(error) or type(error).__name__
        fail(f"cannot ask {url}: {told}; is it the broker's --metrics address, and does it run?")
    try:
        done = json.loads(body)
        errors = done.pop("errors")
    except (ValueError, AttributeError, KeyError):
        fail(f"{url} answered {status} and nothing that a broker would say; is it the broker's --metrics address?")
    if status != _OK or errors:
        fail(f"the broker could not do it: {'; '.join(map(str, errors))}")
    return dict(done)
