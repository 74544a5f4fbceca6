"""The examples of docs/JSON_PROTOCOL.md: the requests are sent, and the responses match."""

import json
import re
from pathlib import Path
from typing import Any

from logbrook.protocol.json_frames import RequestType
from logbrook.server.json.errors import RETRIABLE, JsonError
from tests.security_kit import write_users
from tests.unit.server.json.json_kit import json_peer, json_shell

PAGE = (Path(__file__).parents[4] / "docs" / "JSON_PROTOCOL.md").read_text()
# Requests that create a topic come before those that use it.
ORDER = sorted(RequestType, key=lambda kind: kind is not RequestType.CREATE_TOPIC)


def example(kind: RequestType) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the request and the response of an example."""
    section = PAGE.split(f"### {kind.value} {kind.title}\n")[1].split("\n#")[0]
    request, answer = re.findall(r"```json\n(.*?)```", section, re.DOTALL)
    return json.loads(request), json.loads(answer)


def shape(value: Any) -> Any:
    """Return the field names and the types of their values."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return shape(value[0]) if value else []
    return type(value)


def test_every_example_works_as_printed(tmp_path: Path) -> None:
    with json_shell({"security": {"users_file": write_users(tmp_path)}}) as shell, json_peer(shell) as peer:
        for kind in ORDER:
            request, answer = example(kind)
            if kind is RequestType.PRODUCE:
                peer.produce("orders", *["before"] * answer["base_offset"])
            assert shape(peer.ask(kind, **request)) == shape(answer), kind.title


def test_the_tables_have_every_request_and_every_error() -> None:
    types = re.findall(r"^\| (\d+) \| (\w+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert types == [(str(kind.value), kind.title, str(kind + 128)) for kind in RequestType]
    errors = re.findall(r"^\| (\w+) \|.*\| (yes|no) \|$", PAGE, re.MULTILINE)
    assert dict(errors) == {error.value: "yes" if error in RETRIABLE else "no" for error in JsonError}
