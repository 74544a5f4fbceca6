"""docs/COMMANDS.md, which is made from the commands themselves."""

from pathlib import Path
from typing import Any

import typer

from logbrook.cli.main import app
from logbrook.cli.reference import commands_reference
from tests.unit.cli.shell import Shell

DOCUMENT = Path(__file__).parents[3] / "docs" / "COMMANDS.md"


def test_the_document_is_fresh() -> None:
    assert DOCUMENT.read_text() == commands_reference(), "run: python -m logbrook.cli.reference > docs/COMMANDS.md"


def test_every_command_of_the_help_has_a_section() -> None:
    root: Any = typer.main.get_command(app)
    sections = {line.strip("#` ") for line in commands_reference().splitlines() if line.startswith("#")}
    for name in root.commands:
        command = root.resolve_command(None, [name])[1]
        for path in [f"logbrook {name}", *(f"logbrook {name} {one}" for one in getattr(command, "commands", ()))]:
            assert [one for one in sections if one == path or one.startswith(f"{path} ")], path


def test_its_tables_have_what_the_help_on_a_terminal_has(tmp_path: Path) -> None:
    shown = Shell(None, tmp_path).on_terminal("topic", "trim", "--help", width=200)[1]
    section = commands_reference().split("### `logbrook topic trim TOPIC`\n")[1].split("\n#")[0]
    for flag, meaning in (
        ("--to", "What is before it goes."),
        ("--partition", "Only this one; may be given again."),
        ("--yes", "Do not ask."),
    ):
        assert flag in shown
        assert meaning in shown
        assert f"| `{flag}" in section
        assert meaning in section


def test_the_options_that_are_settings_are_not_told_again() -> None:
    section = commands_reference().split("### `logbrook config show`\n")[1].split("\n#")[0]
    assert "--json" in section
    assert "--listen" not in section
    assert "[SETTINGS.md](SETTINGS.md)" in section
