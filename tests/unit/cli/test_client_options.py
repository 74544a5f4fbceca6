"""-X and --client-config of commands that connect to brokers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from logbrook import Broker
from logbrook.cli.main import app
from tests.unit.cli.shell import Shell


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(["here"]) as broker:
        yield broker


def commands(group: Any, path: str = "logbrook") -> Iterator[tuple[str, Any]]:
    for name in group.commands:
        _, command, _ = group.resolve_command(None, [name])
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def test_every_command_that_takes_brokers_takes_client_options() -> None:
    connecting = 0
    for path, command in commands(typer.main.get_command(app)):
        flags = {flag for parameter in command.params for flag in parameter.opts}
        connects = bool(flags & {"--bootstrap", "--bootstrap-servers", "--broker"})
        connecting += connects
        assert ("-X" in flags) == connects, path
        assert "--client-config" in flags or not connects, path
    assert connecting > 30


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("-X", "s3cr3t"), 2, "-X: it must be KEY=VALUE, such as security.protocol=SASL_SSL"),
        (("-X", "acks=all"), 2, "-X: there is no security option 'acks'; docs/COMMANDS.md says which there are"),
        (("-X", "bootstrap.servers=a:1"), 2, "-X: bootstrap.servers is given with --bootstrap"),
        (("-X", "sasl.pasword=s3cr3t"), 1, "option sasl.pasword: there is no such option; did you mean sasl.password?"),
        (
            ("-X", "sasl.password=s3cr3t"),
            1,
            "option sasl.password: it needs security.protocol=SASL_SSL or SASL_PLAINTEXT, which is PLAINTEXT",
        ),
        (
            ("--client-config", "/nowhere/c.properties"),
            1,
            "/nowhere/c.properties cannot be used as a file of client options: No such file or directory",
        ),
    ],
)
def test_mistakes_are_refused_in_one_sentence(
    broker: Broker, tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    shell = Shell(broker.bootstrap_servers, tmp_path)
    assert shell.refused("topic", "list", *arguments, code=code) == message


def test_the_file_names_the_brokers_and_the_options_of_other_clients_are_ignored(
    broker: Broker, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={broker.bootstrap_servers}\nacks=all\nsecurity.protocol=PLAINTEXT\n")
    shell = Shell(None, tmp_path)
    assert [topic["name"] for topic in shell.json("topic", "list", "--client-config", str(file))] == ["here"]
    shell.environment["LOGBROOK_CLIENT_CONFIG"] = str(file)
    assert [topic["name"] for topic in shell.json("topic", "list")] == ["here"]
    assert "127.0.0.1:1" in shell.refused("topic", "list", "-b", "127.0.0.1:1")


def test_x_wins_over_the_file(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\n")
    shell = Shell(broker.bootstrap_servers, tmp_path)
    config = ("--client-config", str(file))
    assert "plain text" in shell.refused("topic", "list", *config)
    assert shell.json("topic", "list", *config, "-X", "security.protocol=PLAINTEXT")[0]["name"] == "here"
