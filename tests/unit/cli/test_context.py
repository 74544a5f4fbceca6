"""`logbrook context`, and the choice of the cluster."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from logbrook import Broker
from tests.unit.cli.shell import Shell


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(["here"]) as broker:
        yield broker


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(None, tmp_path)


def test_contexts_are_saved_used_and_removed(shell: Shell, tmp_path: Path) -> None:
    assert shell.json("context", "list") == []
    assert shell.ok("context", "save", "one", "a:1,b:2") == "commands now use a:1,b:2\n"
    assert shell.ok("context", "save", "two", "c:3") == "commands now use c:3\n"
    assert shell.ok("context", "use", "one") == "commands now use a:1,b:2\n"
    assert shell.json("context", "list") == [
        {"name": "one", "bootstrap": "a:1,b:2", "current": True, "client_config": None},
        {"name": "two", "bootstrap": "c:3", "current": False, "client_config": None},
    ]
    assert shell.ok("context", "list").splitlines() == [
        "CURRENT  NAME  BOOTSTRAP",
        "*        one   a:1,b:2",
        "         two   c:3",
    ]
    assert json.loads((tmp_path / "logbrook" / "contexts.json").read_text()) == {
        "contexts": {"one": "a:1,b:2", "two": "c:3"},
        "current": "one",
    }
    assert shell.ok("context", "remove", "one") == "removed one; commands now use 127.0.0.1:9092\n"
    assert [context["current"] for context in shell.json("context", "list")] == [False]


def test_the_option_overrides_the_environment_and_that_the_context(shell: Shell, broker: Broker) -> None:
    shell.ok("context", "save", "real", broker.bootstrap_servers)
    assert [topic["name"] for topic in shell.json("topic", "list")] == ["here"]
    shell.environment["LOGBROOK_BOOTSTRAP"] = "127.0.0.1:1"
    assert shell.refused("topic", "list").startswith("cannot connect to 127.0.0.1:1: Connection refused")
    assert [topic["name"] for topic in shell.json("topic", "list", "-b", broker.bootstrap_servers)] == ["here"]
    several = f"127.0.0.1:1,{broker.bootstrap_servers}"
    assert [topic["name"] for topic in shell.json("topic", "list", "--bootstrap", several)] == ["here"]


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("host", "host:9092"),
        ("host, other:9", "host:9092,other:9"),
        ("::1", "[::1]:9092"),
        ("[::1]", "[::1]:9092"),
        ("[::1]:9", "[::1]:9"),
        ("9093", "127.0.0.1:9093"),
    ],
)
def test_a_broker_without_a_port_has_9092(shell: Shell, given: str, used: str) -> None:
    assert shell.ok("context", "save", "here", given) == f"commands now use {used}\n"


def test_without_xdg_it_is_in_the_home_directory(shell: Shell, tmp_path: Path) -> None:
    for variable in ("", "relative/path"):
        shell.environment["XDG_CONFIG_HOME"] = variable
        shell.ok("context", "save", "one", "a:1")
        (tmp_path / ".config" / "logbrook" / "contexts.json").unlink()


def test_invalid_contexts_are_reported(shell: Shell, tmp_path: Path) -> None:
    assert shell.refused("context", "use", "nope") == (
        "there is no context 'nope'; none is saved (`logbrook context save NAME HOST:PORT`)"
    )
    assert shell.refused("context", "save", "x", "a:b", code=2) == "HOST[:PORT],...: 'a:b' is not HOST:PORT"
    shell.ok("context", "save", "one", "a:1")
    assert "saved are one" in shell.refused("context", "remove", "nope")
    file = tmp_path / "logbrook" / "contexts.json"
    for text in ("{", "[]", '{"contexts": {"a": 1}}', '{"contexts": {}, "current": "x"}'):
        file.write_text(text)
        assert str(file) in shell.refused("topic", "list")


def test_an_unwritable_configuration_directory_is_reported(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "logbrook").mkdir()
    (tmp_path / "logbrook" / "contexts.json.new").mkdir()
    assert shell.refused("context", "save", "x", "a:1").startswith("the contexts cannot be saved: ")


def test_names_of_contexts_are_completed(shell: Shell) -> None:
    shell.ok("context", "save", "staging", "a:1")
    shell.environment |= {"COMP_WORDS": "logbrook context use st", "COMP_CWORD": "3"}
    shell.environment["_LOGBROOK_COMPLETE"] = "complete_bash"
    assert shell.run().out.split() == ["staging"]


@pytest.fixture
def web_server() -> Iterator[str]:
    """A server that answers in HTTP instead of Kafka's protocol."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connected, _ = listener.accept()
            with connected:
                connected.recv(1024)
                connected.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield "{}:{}".format(*listener.getsockname())
        thread.join()


def test_a_server_without_kafkas_protocol_is_reported(shell: Shell, web_server: str) -> None:
    message = shell.refused("topic", "list", "-b", web_server)
    assert message.startswith(f"{web_server} answers with HTTP: this is not a Kafka broker; --bootstrap, ")


def test_an_unknown_host_is_reported(shell: Shell) -> None:
    assert shell.refused("topic", "list", "-b", "no-such-host.invalid:9092").startswith(
        "cannot connect to no-such-host.invalid:9092: "
    )
