"""The example clients, run as the docs describe."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.json.json_kit import json_shell
from tests.unit.server.shell_kit import Shell

EXAMPLES = Path(__file__).parents[4] / "examples"
SECONDS = 60.0


@pytest.fixture
def shell() -> Iterator[Shell]:
    with json_shell() as shell:
        yield shell


def run(*command: object, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    words = [str(part) for part in command]
    return subprocess.run(words, input=given, capture_output=True, timeout=SECONDS, check=False)


def test_they_are_checked_and_shipped_with_the_rest() -> None:
    project = tomllib.loads((EXAMPLES.parent / "pyproject.toml").read_text())["tool"]
    assert EXAMPLES.name in project["mypy"]["files"]
    assert EXAMPLES.name in project["hatch"]["build"]["targets"]["sdist"]["include"]


def test_the_python_client_is_short_and_needs_nothing() -> None:
    text = (EXAMPLES / "json_client.py").read_text()
    assert len(text.splitlines()) <= 110
    imported = {line.split()[1].split(".")[0] for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert imported <= sys.stdlib_module_names


def test_the_python_client_creates_produces_and_consumes(shell: Shell) -> None:
    assert shell.broker.json_address is not None
    host, port = shell.broker.json_address

    def client(*arguments: object, given: bytes = b"") -> bytes:
        # Without installed packages.
        done = run(sys.executable, "-IS", EXAMPLES / "json_client.py", f"{host}:{port}", *arguments, given=given)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout

    client("create", "orders", 3)
    assert client("topics") == b"orders\t3\n"
    client("produce", "orders", 1, given=b"one\n\xff\x00\xfe\n\n")
    assert client("consume", "orders", 1, "--wait-ms", 1) == b"one\n\xff\x00\xfe\n\n"
    client("produce", "orders", 1, given=b"two\n")
    assert client("consume", "orders", 1, "--wait-ms", 1) == b"two\n"
    assert client("consume", "orders", 1, "--wait-ms", 1, "--group", "other") == b"one\n\xff\x00\xfe\n\ntwo\n"


def test_the_shell_client_creates_produces_and_fetches(shell: Shell) -> None:
    assert shell.broker.json_address is not None
    script = (EXAMPLES / "json_client.sh", *shell.broker.json_address)
    assert "python" not in (EXAMPLES / "json_client.sh").read_text()

    def client(*arguments: object, given: bytes = b"") -> dict[str, Any]:
        done = run("bash", *script, *arguments, given=given)
        assert (done.returncode, done.stderr) == (0, b"")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    assert client("ping") == {"pong": True}
    assert client("create", "orders", 3)["partition_count"] == 3
    given = b"one\n\xff\xfe\n" + b"x" * 1_000 + b"\nno end"
    assert client("produce", "orders", 1, given=given)["last_offset"] == 3
    records = client("fetch", "orders", 1, 1)["records"]
    assert [record.get("value") for record in records] == [None, "x" * 1_000, "no end"]
    assert records[0]["value_base64"] == "//4="
    assert client("topics")["topics"] == [{"topic": "orders", "partition_count": 3, "internal": False}]
    assert client("request", 7, '{"topic": "orders"}')["partitions"][1]["high_watermark"] == 4


def test_the_shell_client_says_what_went_wrong(shell: Shell) -> None:
    assert shell.broker.json_address is not None
    script = (EXAMPLES / "json_client.sh", *shell.broker.json_address)
    refused = run("bash", *script, "fetch", "nowhere", 0)
    assert (refused.returncode, refused.stdout) == (1, b"")
    assert json.loads(refused.stderr)["error"] == "TopicNotFound"
    assert run("bash", *script, "nonsense").returncode == 2
    assert run("bash", EXAMPLES / "json_client.sh").stderr.startswith(b"A client of Logbrook's JSON protocol")
