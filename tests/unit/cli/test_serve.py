"""`logbrook serve`: the settings that the broker is run with, and the help."""

import sys
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from logbrook.cli.main import app
from logbrook.config import BrokerConfig, Durability
from logbrook.config.catalogue import ValueKind, all_sections, all_settings
from logbrook.config.values import show_value
from tests.unit.config.samples import KEYS, written


class FakeServer(ModuleType):
    """Replaces `logbrook.server.run`."""

    def __init__(self) -> None:
        super().__init__("logbrook.server.run")
        self.configs: list[BrokerConfig] = []
        self.exit_code = 0

    def run(self, config: BrokerConfig) -> int:
        self.configs.append(config)
        return self.exit_code


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    fake = FakeServer()
    monkeypatch.setitem(sys.modules, "logbrook.server.run", fake)
    return fake


def serve(*arguments: str, **environment: str) -> Any:
    return CliRunner().invoke(app, ["serve", *arguments], env=environment)


def test_the_broker_runs_with_the_given_settings(server: FakeServer) -> None:
    done = serve("--data", "/d", "--listen", "0.0.0.0:9", "--log-retention-ms", "7d", "--auto-create-topics")
    assert (done.exit_code, done.output) == (0, "")
    (config,) = server.configs
    assert (config.data, config.network.listen, config.log.retention_ms) == ("/d", "0.0.0.0:9", 604_800_000)
    assert config.topics.auto_create is True


def test_every_setting_has_a_flag(server: FakeServer) -> None:
    for key in KEYS:
        setting, text, value = written(key)
        if setting.form.kind is ValueKind.BOOLEAN:
            done = serve(setting.flag if value else setting.flag.replace("--", "--no-"))
        else:
            done = serve(f"{setting.flag}={text}")
        assert (done.exit_code, done.output) == (0, ""), key
        assert attrgetter(key)(server.configs.pop()) == value, key


def test_the_flag_of_a_listener_is_repeated_for_more(server: FakeServer) -> None:
    done = serve("--listener", "A=127.0.0.1:1", "--listener", "B=127.0.0.1:2")
    assert (done.exit_code, done.output) == (0, "")
    assert server.configs.pop().network.listeners == "A=127.0.0.1:1,B=127.0.0.1:2"


def test_a_flag_wins_over_the_environment_and_that_over_the_file(server: FakeServer, tmp_path: Path) -> None:
    file = tmp_path / "l.toml"
    file.write_text("node_id = 1\n[topics]\nauto_create = true\npartitions = 5\n[storage]\ndurability = 'interval'\n")
    arguments = ("--config", str(file), "--no-auto-create-topics")
    done = serve(*arguments, LOGBROOK_PARTITIONS="6", LOGBROOK_AUTO_CREATE_TOPICS="yes")
    assert (done.exit_code, done.output) == (0, "")
    (config,) = server.configs
    assert (config.topics.auto_create, config.topics.partitions) == (False, 6)
    assert config.storage.durability is Durability.INTERVAL


def test_a_negative_number_is_a_value_and_not_a_flag(server: FakeServer) -> None:
    assert serve("--log-retention-ms", "-1").exit_code == 0
    assert server.configs[0].log.retention_ms == -1


def test_the_exit_code_is_the_servers(server: FakeServer) -> None:
    server.exit_code = 3
    assert serve().exit_code == 3


def test_invalid_settings_are_all_reported_and_nothing_runs(server: FakeServer) -> None:
    arguments = ["--lissten", "0.0.0.0:1", "--listen", "x", "--foo=1", "--bar", "--partitions=0", "start"]
    done = serve(*arguments, LOGBROOK_OFFSETS="disk")
    assert done.exit_code == 2
    assert server.configs == []
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        'error: environment: LOGBROOK_OFFSETS = "disk", but it must be topic or memory',
        "error: command line: --lissten is not a setting; did you mean --listen?",
        "error: command line: --foo is not a setting; `logbrook config show` lists them all",
        "error: command line: --bar is not a setting; `logbrook config show` lists them all",
        'error: command line: --listen = "x", but it must be HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092',
        'error: command line: --partitions = "0", but it must be a whole number from 1 to 10000',
    ]


def test_an_argument_without_a_flag_is_refused(server: FakeServer) -> None:
    done = serve("start", "--data", "d", "now")
    assert done.exit_code == 2
    assert done.stderr.splitlines() == [
        'error: command line: "start" is not an option; a setting is given as --flag VALUE',
        'error: command line: "now" is not an option; a setting is given as --flag VALUE',
    ]


def test_a_flag_without_its_value_is_refused(server: FakeServer) -> None:
    done = serve("--listen")
    assert done.exit_code == 2
    assert "'--listen' requires an argument" in done.stderr
    assert server.configs == []


@pytest.mark.parametrize("columns", [80, 120])
def test_the_help_holds_every_setting_once_in_its_section_and_none_is_cut(columns: int) -> None:
    lines = serve("--help", COLUMNS=str(columns), TERM="dumb").stdout.splitlines()
    assert max(len(line) for line in lines) <= columns
    words = [line.removeprefix("│ ").split(" ")[0] for line in lines if line.startswith("│ --")]
    expected = ["--help"]
    for section in all_sections():
        expected += [] if section.name else ["--config"]
        for setting in all_settings():
            if setting.section == section.name:
                no = "[no-]" if setting.form.kind is ValueKind.BOOLEAN else ""
                expected.append(f"--{no}{setting.flag[2:]}")
    assert words == expected
    assert not any("…" in line for line in lines)


def test_the_help_has_a_panel_for_each_section() -> None:
    lines = serve("--help", COLUMNS="80").stdout.splitlines()
    titles = [line.strip("╭─╮ ") for line in lines if line.startswith("╭")]
    assert titles == ["Options", *(section.title for section in all_sections())]


@pytest.mark.parametrize("columns", [80, 120])
def test_the_help_says_what_a_setting_does_and_its_default(columns: int) -> None:
    panels = serve("--help", COLUMNS=str(columns)).stdout.partition("╭─ Options")[2]
    text = " ".join(panels.replace("│", " ").split())
    for setting in all_settings():
        is_switch = setting.form.kind is ValueKind.BOOLEAN
        flag = setting.flag.replace("--", "--[no-]", 1) if is_switch else setting.flag
        (after,) = (entry for entry in text.split(" --") if f"--{entry}".startswith(f"{flag} "))
        assert setting.facts.doc in after
        default = show_value(setting, setting.default)
        assert f"default: {default}]" in after if default else "default" not in after
