"""Help whose paragraphs are filled to the width of the terminal, as Typer does not do it past the first."""

import inspect
from typing import Any

from typer.core import TyperCommand


class ParagraphCommand(TyperCommand):
    """A command whose docstring has its line ends where the source needs them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        paragraphs = inspect.cleandoc(options.pop("help", None) or "").split("\n\n")
        filled = "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)
        super().__init__(*arguments, help=filled, **options)
