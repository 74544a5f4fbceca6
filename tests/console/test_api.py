"""The HTTP API of a real console: what it answers, what it refuses, and how."""

import base64
import http.client
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from time import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from logbrook.cli.main import app
from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.model import TopicPartition
from logbrook.pipelines.report import REPORTS_TOPIC, Report, RunState, SinkReport, SourceReport
from logbrook.pipelines.reports_topic import write_report
from logbrook.testing import Broker


@dataclass
class Api:
    """Calls it, and gives the status and the answer."""

    url: str

    def __call__(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        host = urlsplit(self.url).netloc
        connection = http.client.HTTPConnection(host, timeout=30)
        try:
            data = json.dumps(body) if isinstance(body, dict) else body
            headers = {"Content-Type": "application/json", **(headers or {})}
            is_chunked = "Transfer-Encoding" in headers
            connection.request(method, path, data, headers, encode_chunked=is_chunked)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text.startswith((b"{", b"[")) else text
        finally:
            connection.close()


@pytest.fixture
def api(console: str) -> Api:
    return Api(console)


def test_a_topic_is_made_filled_read_and_deleted(api: Api) -> None:
    status, made = api("POST", "/api/topics", {"name": "api-one", "partitions": 2, "settings": {"retention.ms": "1"}})
    assert (status, made["name"], len(made["partitions"]), made["settings"]["retention.ms"]) == (201, "api-one", 2, "1")
    records = [
        {"key": "a", "value": {"json": {"n": 1}}, "partition": 1, "timestamp_ms": 5},
        {"key": {"base64": "/wA="}, "value": None, "partition": 1, "headers": [{"name": "h", "value": "ü"}]},
    ]
    status, written = api("POST", "/api/topics/api-one/messages", {"records": records})
    assert (status, written) == (200, {"written": [{"partition": 1, "offset": 0}, {"partition": 1, "offset": 1}]})
    status, page = api("GET", "/api/topics/api-one/messages?partition=1")
    first, second = page["messages"]
    assert (first["key"], first["value"], first["timestamp_ms"]) == ("a", '{"n":1}', 5)
    assert (second["key"], second["value"]) == ({"base64": "/wA="}, None)
    assert second["headers"] == [{"name": "h", "value": "ü"}]
    assert page["next"] == {}
    status, page = api("GET", "/api/topics/api-one/messages?from=end&limit=1&base64=true")
    assert page["messages"][0]["offset"] == 1
    assert page["next"] == {"1": 1}
    status, page = api("GET", "/api/topics/api-one/messages?search=%22n%22")
    assert [one["key"] for one in page["messages"]] == ["a"]
    assert "api-one" in [one["name"] for one in api("GET", "/api/topics")[1]]
    assert api("DELETE", "/api/topics/api-one")[0] == 204
    status, gone = api("GET", "/api/topics/api-one")
    assert (status, gone["error"]["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


def test_keys_go_where_kafkas_clients_put_them(api: Api, broker: Broker) -> None:
    broker.create_topic("api-keys", 7)
    _, written = api("POST", "/api/topics/api-keys/messages", {"records": [{"key": "42"}, {"key": "x"}, {"key": "42"}]})
    first, _, third = written["written"]
    assert first["partition"] == third["partition"]
    assert third["offset"] == first["offset"] + 1


def test_a_group_is_described_reset_and_deleted(api: Api, broker: Broker, client: Client) -> None:
    broker.create_topic("api-read")
    api("POST", "/api/topics/api-read/messages", {"records": [{"value": "1"}, {"value": "2"}, {"value": "3"}]})
    Admin(client).cluster.commit("api-group", {TopicPartition("api-read", 0): 2})
    assert "api-group" in [one["group_id"] for one in api("GET", "/api/groups")[1]]
    assert api("GET", "/api/groups/api-group")[1]["lag"] == 1
    reset = {"to": "start", "dry_run": True}
    _, planned = api("POST", "/api/groups/api-group/reset", reset)
    assert planned["changes"] == [{"topic": "api-read", "partition": 0, "before": 2, "after": 0}]
    assert api("GET", "/api/groups/api-group")[1]["lag"] == 1
    assert api("POST", "/api/groups/api-group/reset", {"to": "start"})[1]["was_done"] is True
    assert api("GET", "/api/groups/api-group")[1]["lag"] == 3
    assert api("DELETE", "/api/groups/api-group")[0] == 204
    assert api("GET", "/api/groups/api-group")[1]["error"]["code"] == "GROUP_ID_NOT_FOUND"


def test_pipelines_are_listed_with_what_they_said_last(api: Api, client: Client) -> None:
    now_ms = round(time() * 1000)
    sinks, sources = (SinkReport("api-copy", 5, 1.5, 2, 0.25, now_ms),), (SourceReport("t", 3), SourceReport("u", 4))
    report = Report("api", RunState.RUNNING, now_ms, now_ms, 60_000, "here", 1, "2", None, sinks, sources)
    for one in (report, replace(report, said_ms=now_ms + 1)):
        write_report(client, REPORTS_TOPIC, "api", one.to_json())
    (found,) = [one for one in api("GET", "/api/pipelines")[1] if one["pipeline"] == "api"]
    assert (found["state"], found["said_ms"], found["rows_per_s"], found["lag"]) == ("running", now_ms + 1, 1.5, 7)
    assert found["sinks"] == [asdict(sinks[0])]
    write_report(client, REPORTS_TOPIC, "api", replace(report, said_ms=1).to_json())
    (found,) = [one for one in api("GET", "/api/pipelines")[1] if one["pipeline"] == "api"]
    assert found["state"] == "lost"
    write_report(client, REPORTS_TOPIC, "api", None)
    assert "api" not in [one["pipeline"] for one in api("GET", "/api/pipelines")[1]]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/api/topics/none/messages", None, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("POST", "/api/topics/none/messages", {"records": [{"value": "x"}]}, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("POST", "/api/topics/api-bad/messages", {"records": []}, 400, "INVALID_REQUEST"),
        ("POST", "/api/topics/api-bad/messages", {"records": [{"vallue": "x"}]}, 400, "INVALID_REQUEST"),
        ("POST", "/api/topics/api-bad/messages", {"records": [{"value": {"base64": "?"}}]}, 400, "INVALID_REQUEST"),
        ("POST", "/api/topics/api-bad/messages", b"{", 400, "INVALID_REQUEST"),
        ("POST", "/api/topics/api-bad/messages", b"\xff\xfe", 400, "INVALID_REQUEST"),
        ("POST", "/api/topics/api-bad/messages", {"records": [{"partition": 9}]}, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("GET", "/api/topics/api-bad/messages?from=middle", None, 400, "INVALID_REQUEST"),
        ("GET", "/api/topics/api-bad/messages?from=offset&at=-1", None, 400, "INVALID_REQUEST"),
        ("GET", "/api/topics/api-bad/messages?from=time&at=noon", None, 400, "INVALID_REQUEST"),
        ("GET", "/api/topics/api-bad/messages?limit=100000", None, 400, "INVALID_REQUEST"),
        ("POST", "/api/topics", {"name": "api-bad"}, 409, "TOPIC_ALREADY_EXISTS"),
        ("POST", "/api/topics", {"name": "no/such/name"}, 400, "INVALID_TOPIC_EXCEPTION"),
        ("POST", "/api/topics", {"name": "x", "settings": {"retention.ms": "week"}}, 400, "INVALID_CONFIG"),
        ("GET", "/api/groups/none", None, 404, "GROUP_ID_NOT_FOUND"),
        ("GET", "/api/nothing", None, 404, "NO_SUCH_CALL"),
        ("PUT", "/api/topics", None, 405, "NO_SUCH_CALL"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(
    method: str, path: str, body: Any, status: int, code: str, api: Api, broker: Broker, client: Client
) -> None:
    if "api-bad" not in Admin(client).topics.names():
        broker.create_topic("api-bad")
    found_status, found = api(method, path, body)
    assert (found_status, found["error"]["code"]) == (status, code)
    assert found["error"]["message"]


def test_a_request_has_a_size_that_it_may_not_pass(api: Api, broker: Broker) -> None:
    broker.create_topic("api-large")
    path = "/api/topics/api-large/messages"
    status, found = api("POST", path, {"records": [{"value": base64.b64encode(bytes(2 << 20)).decode()}]})
    assert (status, found["error"]["code"]) == (413, "MESSAGE_TOO_LARGE")
    status, found = api("POST", path, iter([bytes(1 << 20)] * 9), {"Transfer-Encoding": "chunked"})
    assert (status, found["error"]["code"]) == (413, "TOO_LARGE")
    # It is refused by what it says of itself, before any of it is read.
    status, found = api("POST", path, b"", {"Content-Length": str(9 << 20)})
    assert (status, found["error"]["code"]) == (413, "TOO_LARGE")


def test_the_openapi_document_has_every_call_and_the_page_shows_them(api: Api) -> None:
    status, document = api("GET", "/api/openapi.json")
    assert status == 200
    assert document["paths"].keys() == {
        "/health",
        "/topics",
        "/topics/{topic}",
        "/topics/{topic}/messages",
        "/groups",
        "/groups/{group}",
        "/groups/{group}/reset",
        "/pipelines",
    }
    _, page = api("GET", "/api/docs")
    assert all(path in page.decode() for path in document["paths"])


def test_other_sites_and_other_names_are_refused(api: Api) -> None:
    status, found = api("GET", "/api/health", headers={"Host": "rebound.example:80"})
    assert (status, found["error"]["code"]) == (403, "WRONG_HOST")
    status, found = api("DELETE", "/api/topics/x", headers={"Origin": "http://elsewhere.example"})
    assert (status, found["error"]["code"]) == (403, "WRONG_ORIGIN")
    assert api("GET", "/api/health")[0] == 200


def test_with_a_token_nothing_is_answered_without_it(guarded_console: str) -> None:
    guarded = Api(guarded_console)
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "logbrook_console=1"}):
        status, found = guarded("GET", "/api/health", headers=headers)
        assert (status, found["error"]["code"]) == (401, "TOKEN_NEEDED")
    assert guarded("GET", "/topics")[0] == 303
    assert guarded("GET", "/_nicegui_ws/socket.io/?EIO=4&transport=polling")[0] == 303
    assert guarded("GET", "/api/health", headers={"Authorization": "Bearer open sesame"})[0] == 200


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--listen", "0.0.0.0:0"), "others than this machine could ask"),
        (("--listen", "here"), "is not HOST:PORT"),
        (("--bootstrap", "here"), "--bootstrap"),
    ],
)
def test_a_console_that_should_not_run_does_not_start(arguments: tuple[str, ...], told: str) -> None:
    done = CliRunner().invoke(app, ["console", *arguments], env={"LOGBROOK_CONSOLE_TOKEN": ""})
    assert done.exit_code == 2
    assert told in done.stderr
