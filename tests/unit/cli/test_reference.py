"""docs/COMMANDS.md is generated from the commands."""

from pathlib import Path
from typing import Any

import typer

from logbrook.cli.main import app
from logbrook.cli.reference import commands_reference
from tests.unit.cli.shell import Shell

DOCUMENT = Path(__file__).parents[3] / "docs" / "COMMANDS.md"


def test_commands_md_is_up_to_date() -> None:
    assert DOCUMENT.read_text() == commands_reference(), "run: python -m logbrook.cli.reference > docs/COMMANDS.md"


def test_every_command_of_the_help_has_a_section() -> None:
    root: Any = typer.main.get_command(app)
    sections = {line.strip("#` ") for line in commands_reference().splitlines() if line.startswith("#")}
    for name in root.commands:
        command = root.resolve_command(None, [name])[1]
        for path in [
            f"logbrook {name}",
            *(f"logbrook {name} {subcommand}" for subcommand in getattr(command, "commands", ())),
        ]:
            assert [section for section in sections if section == path or section.startswith(f"{path} ")], path


def test_option_tables_have_the_texts_of_the_help(tmp_path: Path) -> None:
    shown = Shell(None, tmp_path).on_terminal("topic", "trim", "--help", width=200)[1]
    section = commands_reference().split("### `logbrook topic trim TOPIC`\n")[1].split("\n#")[0]
    for flag, meaning in (
        ("--to", "Records before this position are deleted."),
        ("--partition", "Only this partition; repeatable."),
        ("--yes", "Do not ask for confirmation; needed in scripts."),
    ):
        assert flag in shown
        assert meaning in shown
        assert f"| `{flag}" in section
        assert meaning in section


def test_setting_options_are_not_repeated() -> None:
    section = commands_reference().split("### `logbrook config show`\n")[1].split("\n#")[0]
    assert "--json" in section
    assert "--listen" not in section
    assert "[SETTINGS.md](SETTINGS.md)" in section
