"""`logbrook config show`: settings in force and their origins."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from logbrook.cli.main import app
from logbrook.config import BrokerConfig
from logbrook.config.catalogue import ValueKind, all_settings
from logbrook.config.loading import load_settings
from tests.unit.config.samples import KEYS, written


def config(*arguments: str, **environment: str) -> Any:
    return CliRunner().invoke(app, ["config", "show", *arguments], env=environment)


def test_each_setting_is_shown_with_its_origin(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text("\nnode_id = 7\n")
    done = config("--config", str(file), "--listen", "[::1]:0", LOGBROOK_LOG_RETENTION_MS="unlimited")
    assert done.exit_code == 0
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[:2] == ['data = "logbrook-data" # default', "node_id = 7 # my.toml:2"]
    assert lines[lines.index("[network]") + 1] == 'listen = "[::1]:0" # --listen'
    assert 'retention_ms = "unlimited" # LOGBROOK_LOG_RETENTION_MS' in lines


def test_json_has_the_plain_values() -> None:
    done = config("--json", "--log-cleanup-policy", "compact,delete", "--partitions", "3")
    shown = json.loads(done.stdout)
    assert list(shown) == KEYS
    assert shown["topics.partitions"] == {"value": 3, "from": "--partitions"}
    assert shown["log.cleanup_policy"] == {"value": ["delete", "compact"], "from": "--log-cleanup-policy"}
    assert shown["network.advertise"] == {"value": None, "from": "default"}
    assert shown["log.segment_bytes"] == {"value": 1 << 30, "from": "default"}


@pytest.mark.parametrize("text", ["plain", 'a "quoted" \\ path', "new\nline\x7f", "größer 😀"])
def test_the_output_is_a_file_with_the_same_settings(text: str, tmp_path: Path) -> None:
    flags: dict[str, Any] = {written(key)[0].flag: written(key)[1] for key in KEYS} | {"--data": text}
    booleans = [setting.flag for setting in all_settings() if setting.form.kind is ValueKind.BOOLEAN]
    arguments = [f"{flag}={value}" for flag, value in flags.items() if flag not in booleans]
    switches = [flag if flags[flag] == "true" else flag.replace("--", "--no-", 1) for flag in booleans]
    done = config(*arguments, *switches)
    tomllib.loads(done.stdout)
    file = tmp_path / "again.toml"
    file.write_text(done.stdout)
    assert load_settings({"--config": str(file)}, {}).config == load_settings(flags, {}).config


def test_the_defaults_are_shown_as_a_file_with_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "again.toml"
    file.write_text(config().stdout)
    loaded = load_settings({"--config": str(file)}, {})
    assert loaded.config == BrokerConfig()
    assert not [setting.key for setting in all_settings() if loaded.origins[setting.key] == "default"]


def test_invalid_settings_are_refused_as_by_serve() -> None:
    done = config("--partitions", "0")
    assert (done.exit_code, done.stdout) == (2, "")
    message = 'error: command line: --partitions = "0", but it must be a whole number from 1 to 10000\n'
    assert done.stderr == message


def test_the_help_documents_the_json_output() -> None:
    assert "--json" in config("--help").stdout


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_the_group_alone_prints_its_help(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["config", *arguments])
    assert "Usage: " in done.output
    assert "show  Show the settings that `serve` would run with" in done.output
