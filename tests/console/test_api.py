"""The HTTP API of a real console: responses and errors."""

import base64
import http.client
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from time import monotonic, time
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from typer.testing import CliRunner

from logbrook.cli.main import app
from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.model import TopicPartition
from logbrook.pipelines.report import REPORTS_TOPIC, PipelineReport, RunState, SinkReport, SourceReport
from logbrook.pipelines.reporter import write_report
from logbrook.testing import Broker


@dataclass
class Api:
    """Calls the API; returns the status and the body."""

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


def test_a_topic_is_created_filled_read_and_deleted(api: Api) -> None:
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
    assert (page["next"], page["has_more"]) == ({"1": 2}, False)
    status, page = api("GET", "/api/topics/api-one/messages?from=end&limit=1&base64=true")
    assert page["messages"][0]["offset"] == 1
    assert (page["next"], page["next_query"], page["has_more"]) == ({"0": 0, "1": 1}, "from=before&at=0:0,1:1", True)
    status, page = api("GET", f"/api/topics/api-one/messages?{page['next_query']}")
    assert [message["offset"] for message in page["messages"]] == [0]
    assert page["has_more"] is False
    status, page = api("GET", "/api/topics/api-one/messages?search=%22n%22")
    assert [message["key"] for message in page["messages"]] == ["a"]
    assert "api-one" in [topic["name"] for topic in api("GET", "/api/topics")[1]]
    assert api("DELETE", "/api/topics/api-one")[0] == 204
    status, gone = api("GET", "/api/topics/api-one")
    assert (status, gone["error"]["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


def test_a_fetch_continues_at_the_end_and_waits_for_messages(api: Api, broker: Broker) -> None:
    broker.create_topic("api-poll", 2)
    path = "/api/topics/api-poll/messages"
    _, page = api("GET", f"{path}?from=now")
    assert (page["messages"], page["next"], page["next_query"]) == ([], {"0": 0, "1": 0}, "from=positions&at=0:0,1:0")
    with ThreadPoolExecutor(1) as pool:
        # The response arrives with the message, long before the timeout.
        waiting = pool.submit(api, "GET", f"{path}?{page['next_query']}&wait_ms=30000")
        api("POST", path, {"records": [{"value": "late", "partition": 1}]})
        _, page = waiting.result(25)
    assert [message["value"] for message in page["messages"]] == ["late"]
    assert page["next"] == {"0": 0, "1": 1}
    _, page = api("GET", f"{path}?{page['next_query']}&wait_ms=1")
    assert (page["messages"], page["next"]) == ([], {"0": 0, "1": 1})


def test_messages_are_filtered_by_fields(api: Api, broker: Broker) -> None:
    broker.create_topic("api-filter")
    path = "/api/topics/api-filter/messages"
    api("POST", path, {"records": [{"value": {"json": {"country": name}}} for name in ("DE", "FR", "DE")]})
    _, page = api("GET", path + "?filter=" + quote('value.country == "DE"'))
    assert [message["offset"] for message in page["messages"]] == [0, 2]


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
def test_a_stream_sends_messages_as_they_are_written(api: Api, broker: Broker, accept: str) -> None:
    topic = "api-stream" if accept == "*/*" else "api-events"
    broker.create_topic(topic)
    path = f"/api/topics/{topic}/messages"
    api("POST", path, {"records": [{"value": "old"}]})
    connection = http.client.HTTPConnection(urlsplit(api.url).netloc, timeout=30)
    connection.request("GET", f"{path}/stream", headers={"Accept": accept})
    response = connection.getresponse()
    assert response.status == 200
    # The first bytes are sent after the position is taken.
    assert response.readline().strip() in (b"", b":")
    api("POST", path, {"records": [{"value": "new"}, {"value": "newer"}]})
    lines: list[bytes] = []
    while len([line for line in lines if b"value" in line]) < 2:
        lines.append(response.readline().strip())
    connection.close()
    messages = [json.loads(line.removeprefix(b"data: ")) for line in lines if b"value" in line]
    assert [message["value"] for message in messages] == ["new", "newer"]
    if accept == "text/event-stream":
        assert b"id: 0:3" in lines


def test_a_stream_sends_messages_of_partitions_that_are_added_while_it_runs(api: Api, broker: Broker) -> None:
    broker.create_topic("api-widen", 2)
    path = "/api/topics/api-widen/messages"
    with _stream(api, f"{path}/stream") as whole, _stream(api, f"{path}/stream?partition=1") as single:
        assert api("POST", "/api/topics/api-widen/partitions", {"count": 4})[0] == 200
        assert api("POST", path, {"records": [{"value": "added", "partition": 3}]})[0] == 200
        assert _next_message(whole)["value"] == "added"
        # A stream of one partition stays with it.
        assert api("POST", path, {"records": [{"value": "chosen", "partition": 1}]})[0] == 200
        assert _next_message(single)["value"] == "chosen"


def test_a_continued_fetch_and_event_stream_read_partitions_that_were_added_between(api: Api, broker: Broker) -> None:
    broker.create_topic("api-grown", 2)
    path = "/api/topics/api-grown/messages"
    _, everything = api("GET", f"{path}?from=now")
    _, first = api("GET", f"{path}?from=now&partition=0")
    assert first["next_query"] == "from=positions&at=0:0&partition=0"
    assert api("POST", "/api/topics/api-grown/partitions", {"count": 3})[0] == 200
    assert api("POST", path, {"records": [{"value": "added", "partition": 2}]})[0] == 200
    _, page = api("GET", f"{path}?{everything['next_query']}")
    assert [message["value"] for message in page["messages"]] == ["added"]
    assert page["next"] == {"0": 0, "1": 0, "2": 1}
    _, page = api("GET", f"{path}?{first['next_query']}")
    assert (page["messages"], page["next"]) == ([], {"0": 0})
    # Positions that leave out a partition before the last one name the partitions to read.
    _, page = api("GET", f"{path}?from=positions&at=1:0")
    assert (page["messages"], page["next"]) == ([], {"1": 0})
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "0:0,1:0"}
    with _stream(api, f"{path}/stream", headers) as events:
        assert _next_message(events)["value"] == "added"


def test_a_position_outside_the_chosen_partition_is_refused(api: Api, broker: Broker) -> None:
    broker.create_topic("api-other", 2)
    status, answer = api("GET", "/api/topics/api-other/messages?from=positions&at=0:0&partition=1")
    assert (status, answer["error"]["message"]) == (400, "at has no position of partition 1")


@contextmanager
def _stream(api: Api, path: str, headers: Mapping[str, str] | None = None) -> Iterator[http.client.HTTPResponse]:
    """Open a stream and read its first line, which is sent after its position is taken."""
    connection = http.client.HTTPConnection(urlsplit(api.url).netloc, timeout=30)
    connection.request("GET", path, headers=headers or {})
    with closing(connection), connection.getresponse() as response:
        assert response.status == 200
        response.readline()
        yield response


def _next_message(stream: http.client.HTTPResponse) -> Any:
    # Heartbeats keep the socket from timing out.
    deadline_s, line = monotonic() + 20, b""
    while b"value" not in line:
        line = stream.readline()
        assert line, "the stream has ended"
        assert monotonic() < deadline_s, "no message has arrived"
    return json.loads(line.removeprefix(b"data: "))


def test_a_stream_of_an_unknown_topic_or_backwards_is_refused(api: Api, broker: Broker) -> None:
    assert api("GET", "/api/topics/api-none/messages/stream")[0] == 404
    broker.create_topic("api-forward")
    status, answer = api("GET", "/api/topics/api-forward/messages/stream?from=end")
    assert (status, answer["error"]["code"]) == (400, "INVALID_REQUEST")


def test_an_event_stream_continues_after_the_last_event(api: Api, broker: Broker) -> None:
    broker.create_topic("api-resume")
    path = "/api/topics/api-resume/messages"
    api("POST", path, {"records": [{"value": "1"}, {"value": "2"}]})
    connection = http.client.HTTPConnection(urlsplit(api.url).netloc, timeout=30)
    connection.request("GET", f"{path}/stream", headers={"Accept": "text/event-stream", "Last-Event-ID": "0:1"})
    response = connection.getresponse()
    line = b""
    while not line.startswith(b"data: "):
        line = response.readline()
    connection.close()
    assert json.loads(line.removeprefix(b"data: "))["value"] == "2"


def test_headers_are_an_object_or_a_list(api: Api, broker: Broker) -> None:
    broker.create_topic("api-headers")
    path = "/api/topics/api-headers/messages"
    as_list = [{"name": "a", "value": "1"}, {"name": "a", "value": None}]
    records = [{"headers": {"a": "1", "b": {"json": [2]}}}, {"headers": as_list}]
    assert api("POST", path, {"records": records})[0] == 200
    _, page = api("GET", path)
    assert [message["headers"] for message in page["messages"]] == [
        [{"name": "a", "value": "1"}, {"name": "b", "value": "[2]"}],
        as_list,
    ]


def test_settings_are_changed_and_unset(api: Api, broker: Broker) -> None:
    broker.create_topic("api-settings")
    path = "/api/topics/api-settings/settings"
    status, settings = api("PATCH", path, {"retention.ms": 60_000, "cleanup.policy": "compact"})
    values = {setting["name"]: (setting["value"], setting["source"]) for setting in settings}
    assert (status, values["retention.ms"], values["cleanup.policy"]) == (200, ("60000", "TOPIC"), ("compact", "TOPIC"))
    api("PATCH", path, {"retention.ms": None})
    values = {setting["name"]: (setting["value"], setting["source"]) for setting in api("GET", path)[1]}
    assert values["retention.ms"][1] != "TOPIC"
    assert values["cleanup.policy"] == ("compact", "TOPIC")
    status, answer = api("PATCH", path, {"cleanup.policy": "shred"})
    assert (status, answer["error"]["code"]) == (400, "INVALID_CONFIG")


def test_partitions_are_added_and_messages_trimmed(api: Api, broker: Broker) -> None:
    broker.create_topic("api-grow")
    path = "/api/topics/api-grow"
    status, topic = api("POST", f"{path}/partitions", {"count": 3})
    assert (status, len(topic["partitions"])) == (200, 3)
    assert api("POST", f"{path}/partitions", {"count": 1})[1]["error"]["code"] == "INVALID_PARTITIONS"
    for partition in (0, 2):
        records = [{"value": "x", "partition": partition}] * 5
        assert api("POST", f"{path}/messages", {"records": records})[0] == 200
    planned = {"to": "offset", "at": 3, "partitions": [2]}
    changes = [{"partition": 2, "before": 0, "after": 3}]
    assert api("POST", f"{path}/trim", {**planned, "dry_run": True})[1] == {"partitions": changes, "was_done": False}
    assert api("POST", f"{path}/trim", planned)[1] == {"partitions": changes, "was_done": True}
    starts = [partition["start_offset"] for partition in api("GET", path)[1]["partitions"]]
    assert starts == [0, 0, 3]
    assert api("POST", f"{path}/trim", {"to": "end", "partitions": [9]})[0] == 404
    assert api("POST", f"{path}/trim", {"to": "start"})[0] == 400


def test_a_group_with_a_slash_is_reset_in_chosen_partitions(api: Api, broker: Broker, client: Client) -> None:
    broker.create_topic("api-part", 2)
    api("POST", "/api/topics/api-part/messages", {"records": [{"value": "x", "partition": n} for n in (0, 1)]})
    committed = {TopicPartition("api-part", 0): 1, TopicPartition("api-part", 1): 1}
    Admin(client).cluster.coordinators.commit("api/group", committed)
    path = "/api/groups/api%2Fgroup"
    _, reset = api("POST", f"{path}/reset", {"to": "start", "topics": ["api-part"], "partitions": [1]})
    assert reset["changes"] == [{"topic": "api-part", "partition": 1, "before": 1, "after": 0}]
    assert [part["committed_offset"] for part in api("GET", path)[1]["partitions"]] == [1, 0]
    assert api("DELETE", path)[0] == 204


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"value": {"total": 9}}], 'records[0].value: this must be a string, null, {"base64": "…"} or {"json": …}: to '
         'write the object as JSON, wrap it in {"json": …}'),
        ([{}, {"key": 5}], 'records[1].key: this must be a string, null, {"base64": "…"} or {"json": …}: to write the '
         'number as JSON, wrap it in {"json": …}'),
        ([{"vallue": 1}], "records[0].vallue: there is no such field"),
        ([{"headers": {"a": [1]}}], 'records[0].headers[0].value: this must be a string, null, {"base64": "…"} or '
         '{"json": …}: to write the list as JSON, wrap it in {"json": …}'),
    ],
)  # fmt: skip
def test_a_wrong_value_has_one_error_that_says_what_to_write(records: Any, message: str, api: Api) -> None:
    status, answer = api("POST", "/api/topics/any/messages", {"records": records})
    assert (status, answer["error"]["message"]) == (400, message)


def test_bodies_that_are_not_json_are_explained(api: Api) -> None:
    path = "/api/topics/any/messages"
    for body, headers, part in (
        (b"{", {}, "the body is not JSON"),
        (b"{}", {"Content-Type": "text/plain"}, "curl --json"),
        (None, {}, "curl --json"),
        (b'{"records": ' + b"[" * 100_000, {}, "nested too deeply"),
    ):
        status, answer = api("POST", path, body, headers)
        assert (status, answer["error"]["code"]) == (400, "INVALID_REQUEST")
        assert part in answer["error"]["message"]


def test_keys_are_partitioned_as_by_kafkas_clients(api: Api, broker: Broker) -> None:
    broker.create_topic("api-keys", 7)
    _, written = api("POST", "/api/topics/api-keys/messages", {"records": [{"key": "42"}, {"key": "x"}, {"key": "42"}]})
    first, _, third = written["written"]
    assert first["partition"] == third["partition"]
    assert third["offset"] == first["offset"] + 1


def test_a_group_is_described_reset_and_deleted(api: Api, broker: Broker, client: Client) -> None:
    broker.create_topic("api-read")
    api("POST", "/api/topics/api-read/messages", {"records": [{"value": "1"}, {"value": "2"}, {"value": "3"}]})
    Admin(client).cluster.coordinators.commit("api-group", {TopicPartition("api-read", 0): 2})
    assert "api-group" in [group["group_id"] for group in api("GET", "/api/groups")[1]]
    assert api("GET", "/api/groups/api-group")[1]["lag"] == 1
    reset = {"to": "start", "dry_run": True}
    _, planned = api("POST", "/api/groups/api-group/reset", reset)
    assert planned["changes"] == [{"topic": "api-read", "partition": 0, "before": 2, "after": 0}]
    assert api("GET", "/api/groups/api-group")[1]["lag"] == 1
    assert api("POST", "/api/groups/api-group/reset", {"to": "start"})[1]["was_done"] is True
    assert api("GET", "/api/groups/api-group")[1]["lag"] == 3
    assert api("DELETE", "/api/groups/api-group")[0] == 204
    assert api("GET", "/api/groups/api-group")[1]["error"]["code"] == "GROUP_ID_NOT_FOUND"


def test_pipelines_are_listed_with_their_last_report(api: Api, client: Client) -> None:
    now_ms = round(time() * 1000)
    sinks, sources = (SinkReport("api-copy", 5, 1.5, 2, 0.25, now_ms),), (SourceReport("t", 3), SourceReport("u", 4))
    report = PipelineReport("api", RunState.RUNNING, now_ms, now_ms, 60_000, "here", 1, "2", None, sinks, sources)
    for written in (report, replace(report, said_ms=now_ms + 1)):
        write_report(client, REPORTS_TOPIC, "api", written.to_json())
    (pipeline,) = [listed for listed in api("GET", "/api/pipelines")[1] if listed["pipeline"] == "api"]
    assert (pipeline["state"], pipeline["said_ms"], pipeline["rows_per_s"], pipeline["lag"]) == (
        "running",
        now_ms + 1,
        1.5,
        7,
    )
    assert pipeline["sinks"] == [asdict(sinks[0])]
    write_report(client, REPORTS_TOPIC, "api", replace(report, said_ms=1).to_json())
    (pipeline,) = [listed for listed in api("GET", "/api/pipelines")[1] if listed["pipeline"] == "api"]
    assert pipeline["state"] == "lost"
    write_report(client, REPORTS_TOPIC, "api", None)
    assert "api" not in [listed["pipeline"] for listed in api("GET", "/api/pipelines")[1]]


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
        ("GET", "/api/topics/api-bad/messages?form=end", None, 400, "INVALID_REQUEST"),
        ("GET", "/api/topics/api-bad/messages?from=positions&at=0", None, 400, "INVALID_REQUEST"),
        ("GET", "/api/topics/api-bad/messages?filter=eval(1)", None, 400, "INVALID_REQUEST"),
        ("POST", "/api/topics", {"name": "api-bad"}, 409, "TOPIC_ALREADY_EXISTS"),
        ("POST", "/api/topics", {"name": "no/such/name"}, 400, "INVALID_TOPIC_EXCEPTION"),
        ("POST", "/api/topics", {"name": "x", "settings": {"retention.ms": "week"}}, 400, "INVALID_CONFIG"),
        ("GET", "/api/groups/none", None, 404, "GROUP_ID_NOT_FOUND"),
        ("GET", "/api/nothing", None, 404, "NO_SUCH_CALL"),
        ("PUT", "/api/topics", None, 405, "NO_SUCH_CALL"),
    ],
)
def test_invalid_requests_are_refused_with_a_reason(
    method: str, path: str, body: Any, status: int, code: str, api: Api, broker: Broker, client: Client
) -> None:
    if "api-bad" not in Admin(client).topics.names():
        broker.create_topic("api-bad")
    found_status, answer = api(method, path, body)
    assert (found_status, answer["error"]["code"]) == (status, code)
    assert answer["error"]["message"]


def test_a_request_that_is_too_large_is_refused(api: Api, broker: Broker) -> None:
    broker.create_topic("api-large")
    path = "/api/topics/api-large/messages"
    status, answer = api("POST", path, {"records": [{"value": base64.b64encode(bytes(2 << 20)).decode()}]})
    assert (status, answer["error"]["code"]) == (413, "MESSAGE_TOO_LARGE")
    status, answer = api("POST", path, iter([bytes(1 << 20)] * 9), {"Transfer-Encoding": "chunked"})
    assert (status, answer["error"]["code"]) == (413, "TOO_LARGE")
    # It is refused because of its Content-Length, before any of the body is read.
    status, answer = api("POST", path, b"", {"Content-Length": str(9 << 20)})
    assert (status, answer["error"]["code"]) == (413, "TOO_LARGE")


def test_the_openapi_document_has_every_call_and_the_page_shows_them(api: Api) -> None:
    status, document = api("GET", "/api/openapi.json")
    assert status == 200
    assert document["paths"].keys() == {
        "/health",
        "/topics",
        "/topics/{topic}",
        "/topics/{topic}/messages",
        "/topics/{topic}/messages/stream",
        "/topics/{topic}/partitions",
        "/topics/{topic}/settings",
        "/topics/{topic}/trim",
        "/groups",
        "/groups/{group}",
        "/groups/{group}/reset",
        "/cluster",
        "/cluster/partitions",
        "/pipelines",
    }
    _, page = api("GET", "/api/docs")
    assert all(path in page.decode() for path in document["paths"])


def test_every_parameter_and_every_field_of_a_body_is_described(api: Api) -> None:
    _, document = api("GET", "/api/openapi.json")
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    for operation in operations:
        assert operation["description"]
        assert all(parameter["description"] for parameter in operation.get("parameters", ()))
    for name, schema in document["components"]["schemas"].items():
        if name.endswith("In"):
            assert [field for field, facts in schema["properties"].items() if not facts.get("description")] == [], name
    _, page = api("GET", "/api/docs")
    assert "records[].headers" in page.decode()
    assert "<code>next_query</code>" in page.decode()
    assert "`" not in page.decode()


def test_other_origins_and_host_names_are_refused(api: Api) -> None:
    status, answer = api("GET", "/api/health", headers={"Host": "rebound.example:80"})
    assert (status, answer["error"]["code"]) == (403, "WRONG_HOST")
    status, answer = api("DELETE", "/api/topics/x", headers={"Origin": "http://elsewhere.example"})
    assert (status, answer["error"]["code"]) == (403, "WRONG_ORIGIN")
    assert api("GET", "/api/health")[0] == 200


def test_with_a_token_every_request_needs_it(guarded_console: str) -> None:
    guarded = Api(guarded_console)
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "logbrook_console=1"}):
        status, answer = guarded("GET", "/api/health", headers=headers)
        assert (status, answer["error"]["code"]) == (401, "TOKEN_NEEDED")
    assert guarded("GET", "/topics")[0] == 303
    assert guarded("GET", "/_nicegui_ws/socket.io/?EIO=4&transport=polling")[0] == 303
    assert guarded("GET", "/api/health", headers={"Authorization": "Bearer open sesame"})[0] == 200


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--listen", "0.0.0.0:0"), "is reachable from other hosts"),
        (("--listen", "here"), "is not HOST:PORT"),
        (("--bootstrap", "here:port"), "--bootstrap"),
        (("--schema-registry", "here:8081"), "is not the URL of a schema registry"),
    ],
)
def test_invalid_console_options_are_refused(arguments: tuple[str, ...], told: str) -> None:
    done = CliRunner().invoke(app, ["console", *arguments], env={"LOGBROOK_CONSOLE_TOKEN": ""})
    assert done.exit_code == 2
    assert told in done.stderr
