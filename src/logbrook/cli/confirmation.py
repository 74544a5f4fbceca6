"""A question before something is destroyed."""

import sys
from typing import Annotated

import typer

from logbrook.cli.failures import FAILED, refuse

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, yes: bool) -> None:
    """Returns if it is to be done. Where nobody can be asked, --yes has to be given."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        refuse("--yes", f"{question} Nobody can be asked here: give --yes to do it")
    if not typer.confirm(question):
        typer.echo("nothing was changed", err=True)
        raise typer.Exit(FAILED)
