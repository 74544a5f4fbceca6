"""Verification and maintenance of a running broker's logs.

`run_maintenance` and `verify_in_broker` use the HTTP listener of a Logbrook broker (--metrics), which works on its own
files. `check_through_broker` fetches all records of any Kafka cluster and checks the batches on this side.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import Annotated, Any, NoReturn
from urllib.parse import urlencode, urlsplit

import typer

from logbrook.cli.client_options import client_security
from logbrook.cli.failures import fail, refuse
from logbrook.cli.log_data import chosen_partitions
from logbrook.cli.terminal import verifying_progress
from logbrook.client import BrokerError
from logbrook.client.admin import Admin
from logbrook.client.http import http_connection, http_headers
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.records.batch import check_batch, iter_headers
from logbrook.records.errors import RecordsError
from logbrook.storage.verification import Damage, LogCheckResult

BrokerUrl = Annotated[
    str | None,
    typer.Option(
        "--broker", metavar="URL", help="HTTP listener (--metrics) of a running broker: http://127.0.0.1:9644."
    ),
]

_CONNECT_TIMEOUT_S = 3.0
# While it verifies, a broker reports its progress every second.
_SILENCE_S_MAX = 60.0
_OK = 200
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_REASON_BYTES_MAX = 4096


class BrokerUnavailableError(Exception):
    """No server responds at the URL, or it is not a Logbrook broker."""


def run_maintenance(
    url: str, step: str, partitions: Sequence[str] | None, *, active: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """Have the broker run a checkpoint and one maintenance step, for these partitions or all.

    Returns the result and the errors of single partitions; ends the command if nothing was done.
    """
    query = [("step", step), *(("partition", name) for name in partitions or ())]
    if active:
        query.append(("active", "true"))
    try:
        # No timeout: a compaction may take arbitrarily long.
        with _posted(url, "/maintenance", query, None) as response, _parsing(url):
            result = json.loads(response.read())
            errors = [str(error) for error in result.pop("errors")]
    except BrokerUnavailableError as error:
        fail(str(error))
    if not result:
        fail(f"the broker could not do it: {'; '.join(errors)}")
    return result, errors


def verify_in_broker(url: str, partitions: Sequence[str] | None) -> list[LogCheckResult]:
    """Have the broker verify its files. Raises BrokerUnavailableError; ends the command if verification fails."""
    query = [("partition", name) for name in partitions or ()]
    results: list[LogCheckResult] = []
    is_done = False
    with (
        _posted(url, "/verify", query, _SILENCE_S_MAX) as response,
        verifying_progress() as show_progress,
        _parsing(url),
    ):
        for line in response:
            message = json.loads(line)
            if "errors" in message:
                fail(f"the broker could not do it: {'; '.join(map(str, message['errors']))}")
            if "progress" in message:
                show_progress(message["progress"])
            elif "done" in message:
                is_done = True
            else:
                results.append(LogCheckResult.from_form(message))
    if not is_done:
        fail(f"{url} ended its answer before the verification was complete")
    return results


def check_through_broker(admin: Admin, names: Sequence[str] | None) -> list[LogCheckResult]:
    """Fetch all records of the partitions and check their batches. Raises ClientError."""
    bounds = {
        TopicPartition(topic.name, partition.partition): (partition.start_offset or 0, partition.end_offset or 0)
        for topic in admin.topics.all()
        for partition in topic.partitions
    }
    return [_check_partition(admin, partition, *bounds[partition]) for partition in chosen_partitions([*bounds], names)]


def _check_partition(admin: Admin, partition: TopicPartition, start: int, end: int) -> LogCheckResult:
    batches = records = bytes_read = 0
    offset = start
    damage = None
    while offset < end and damage is None:
        try:
            fetched = admin.client.fetch(partition.topic, partition.partition, Offset(offset))
        except BrokerError as error:
            return LogCheckResult(partition, None, None, None, None, Damage(str(error), offset=Offset(offset)))
        before = offset
        try:
            for position, header in iter_headers(fetched.records):
                check_batch(fetched.records, position, position + header.size)
                if header.next_offset <= offset:
                    raise RecordsError(f"a batch with offset {header.base_offset} follows offset {offset - 1}")
                offset = header.next_offset
                batches, records, bytes_read = batches + 1, records + header.count, bytes_read + header.size
        except RecordsError as error:
            damage = Damage(str(error), offset=Offset(offset))
        if damage is None and offset == before:
            # The remaining offsets were compacted away.
            break
    return LogCheckResult(partition, None, batches, records, bytes_read, damage)


@contextmanager
def _posted(url: str, path: str, query: Sequence[tuple[str, str]], timeout_s: float | None) -> Iterator[HTTPResponse]:
    """Send a POST and yield the response. Raises BrokerUnavailableError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        refuse("--broker", f"{url!r} is not a URL such as http://127.0.0.1:9644")
    try:
        security = client_security()
        connection = http_connection(url, _CONNECT_TIMEOUT_S, security)
    except ValueError as error:
        refuse("--broker", f"{url!r}: {error}")
    with closing(connection):
        try:
            connection.connect()
            connection.sock.settimeout(timeout_s)
            target = f"{parts.path.rstrip('/')}{path}?{urlencode(query)}".rstrip("?")
            connection.request("POST", target, headers=http_headers(url, security))
            response = connection.getresponse()
        except (OSError, HTTPException, ValueError) as error:
            raise BrokerUnavailableError(
                f"{url} does not respond: {_reason(error)}; is it the broker's --metrics address, and is it running?"
            ) from error
        if response.status in _REFUSED:
            _refuse_access(url, response, has_credentials=security.sasl is not None)
        if response.status != _OK and response.headers.get_content_type() != "application/json":
            raise BrokerUnavailableError(f"{url} answered {response.status}; is it the broker's --metrics address?")
        yield response


def _refuse_access(url: str, response: HTTPResponse, *, has_credentials: bool) -> NoReturn:
    """End the command with the broker's reason."""
    text = response.read(_REASON_BYTES_MAX).decode("utf-8", "replace").strip()
    with suppress(ValueError, KeyError, TypeError, IndexError):
        text = str(json.loads(text)["errors"][0])
    advice = ""
    if response.status == HTTPStatus.UNAUTHORIZED:
        advice = "; give the user and password with --client-config FILE or -X"
        if has_credentials and urlsplit(url).scheme != "https":
            advice += "; they are sent to https addresses and to this machine only"
    fail(f"{url} refuses it: {text}{advice}")


@contextmanager
def _parsing(url: str) -> Iterator[None]:
    """End the command if the answer inside the block is incomplete or not that of a broker."""
    try:
        yield
    except (OSError, HTTPException) as error:
        fail(f"{url} stopped in the middle of its answer: {_reason(error)}")
    except (ValueError, AttributeError, KeyError, TypeError):
        fail(f"the answer of {url} is not that of a Logbrook broker; is it the broker's --metrics address?")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
