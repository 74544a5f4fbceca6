"""Maintenance and verification of a running broker's files, by the broker, through its port for operators."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Annotated, Any
from urllib.parse import urlencode, urlsplit

import typer

from logbrook.cli.failures import fail, refuse
from logbrook.cli.progress import verifying_progress
from logbrook.storage.findings import Checked

Broker = Annotated[
    str | None,
    typer.Option(
        "--broker", metavar="URL", help="A running broker's port for operators, such as http://127.0.0.1:9644."
    ),
]

_CONNECT_S = 3.0
# A broker that verifies tells every second how far it is.
_SILENCE_S = 60.0
_OK = 200


class NotAskedError(Exception):
    """Nobody is there who could be asked, or somebody who knows nothing of it."""


def run_maintenance(
    url: str, step: str, partitions: Sequence[str] | None, *, active: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """A checkpoint and one step of maintenance, of these partitions or all, now. Returns what it did and what was in
    the way; ends the command if it was not done."""
    query = [("step", step), *(("partition", name) for name in partitions or ())]
    if active:
        query.append(("active", "true"))
    try:
        # Nobody knows how long a compaction takes.
        with _asked(url, "/maintenance", query, None) as response, _understood(url):
            done = json.loads(response.read())
            errors = [str(error) for error in done.pop("errors")]
    except NotAskedError as error:
        fail(str(error))
    if not done:
        fail(f"the broker could not do it: {'; '.join(errors)}")
    return done, errors


def verify_in_broker(url: str, partitions: Sequence[str] | None) -> list[Checked]:
    """What the broker finds when it reads its own files. Raises NotAskedError; ends the command if it was not done."""
    query = [("partition", name) for name in partitions or ()]
    checked: list[Checked] = []
    is_done = False
    with _asked(url, "/verify", query, _SILENCE_S) as response, verifying_progress() as tell, _understood(url):
        for line in response:
            told = json.loads(line)
            if "errors" in told:
                fail(f"the broker could not do it: {'; '.join(map(str, told['errors']))}")
            if "progress" in told:
                tell(told["progress"])
            elif "done" in told:
                is_done = True
            else:
                checked.append(Checked.from_form(told))
    if not is_done:
        fail(f"{url} has stopped in the middle of it")
    return checked


@contextmanager
def _asked(url: str, path: str, query: Sequence[tuple[str, str]], silence_s: float | None) -> Iterator[HTTPResponse]:
    """The answer to a POST. Raises NotAskedError where nothing of the kind can be asked for."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        refuse("--broker", f"{url!r} is no URL such as http://127.0.0.1:9644")
    try:
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname, parts.port, timeout=_CONNECT_S)
    except ValueError as error:
        refuse("--broker", f"{url!r}: {error}")
    with closing(connection):
        try:
            connection.connect()
            connection.sock.settimeout(silence_s)
            connection.request("POST", f"{parts.path.rstrip('/')}{path}?{urlencode(query)}".rstrip("?"))
            response = connection.getresponse()
        except (OSError, HTTPException, ValueError) as error:
            raise NotAskedError(
                f"cannot ask {url}: {_words(error)}; is it the broker's --metrics address, and does it run?"
            ) from error
        if response.status != _OK and response.headers.get_content_type() != "application/json":
            raise NotAskedError(f"{url} answered {response.status}; is it the broker's --metrics address?")
        yield response


@contextmanager
def _understood(url: str) -> Iterator[None]:
    """Around reading an answer. Ends the command if it is none, or none that is whole."""
    try:
        yield
    except (OSError, HTTPException) as error:
        fail(f"{url} has stopped in the middle of it: {_words(error)}")
    except (ValueError, AttributeError, KeyError, TypeError):
        fail(f"{url} answered nothing that a broker would say; is it the broker's --metrics address?")


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
