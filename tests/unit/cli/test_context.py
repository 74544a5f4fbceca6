"""`logbrook context`, and which cluster commands talk to."""

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
    assert shell.ok("context", "save", "one", "a:1,b:2") == "commands talk to a:1,b:2 now\n"
    assert shell.ok("context", "save", "two", "c:3") == "commands talk to c:3 now\n"
    assert shell.ok("context", "use", "one") == "commands talk to a:1,b:2 now\n"
    assert shell.json("context", "list") == [
        {"name": "one", "bootstrap": "a:1,b:2", "current": True},
        {"name": "two", "bootstrap": "c:3", "current": False},
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
    assert shell.ok("context", "remove", "one") == "removed one; commands talk to 127.0.0.1:9092\n"
    assert [one["current"] for one in shell.json("context", "list")] == [False]


def test_an_option_goes_before_the_environment_and_that_before_the_context(shell: Shell, broker: Broker) -> None:
    shell.ok("context", "save", "real", broker.bootstrap_servers)
    assert [one["name"] for one in shell.json("topic", "list")] == ["here"]
    shell.environment["LOGBROOK_BOOTSTRAP"] = "127.0.0.1:1"
    assert shell.refused("topic", "list").startswith("cannot connect to 127.0.0.1:1: Connection refused")
    assert [one["name"] for one in shell.json("topic", "list", "-b", broker.bootstrap_servers)] == ["here"]
    several = f"127.0.0.1:1,{broker.bootstrap_servers}"
    assert [one["name"] for one in shell.json("topic", "list", "--bootstrap", several)] == ["here"]


def test_without_xdg_it_is_in_the_home_directory(shell: Shell, tmp_path: Path) -> None:
    for variable in ("", "relative/path"):
        shell.environment["XDG_CONFIG_HOME"] = variable
        shell.ok("context", "save", "one", "a:1")
        (tmp_path / ".config" / "logbrook" / "contexts.json").unlink()


def test_what_cannot_be_is_told(shell: Shell, tmp_path: Path) -> None:
    assert shell.refused("context", "use", "nope") == (
        "there is no context 'nope'; none is saved (`logbrook context save NAME HOST:PORT`)"
    )
    assert shell.refused("context", "save", "x", "nowhere", code=2) == "HOST:PORT,...: 'nowhere' is not HOST:PORT"
    shell.ok("context", "save", "one", "a:1")
    assert "saved are one" in shell.refused("context", "remove", "nope")
    file = tmp_path / "logbrook" / "contexts.json"
    for text in ("{", "[]", '{"contexts": {"a": 1}}', '{"contexts": {}, "current": "x"}'):
        file.write_text(text)
        assert str(file) in shell.refused("topic", "list")


def test_a_directory_that_cannot_be_written_is_told(shell: Shell, tmp_path: Path) -> None:
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
    """Something that speaks, and not Kafka's protocol."""
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


def test_something_else_that_answers_is_told(shell: Shell, web_server: str) -> None:
    told = shell.refused("topic", "list", "-b", web_server)
    assert told.startswith("what answers there does not speak Kafka's protocol as it should: ")


def test_a_name_that_is_no_host_is_told(shell: Shell) -> None:
    assert shell.refused("topic", "list", "-b", "no-such-host.invalid:9092").startswith(
        "cannot connect to no-such-host.invalid:9092: "
    )
