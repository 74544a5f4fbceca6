"""Scenario files: commands, each followed by the trace of all its effects.

    # The rule that this block shows.
    join a
    ----
    a.join: a/1 is in generation 1, range, leads a/1

A file is a list of blocks with empty lines between them. A block is comments, commands, a line of dashes and the
expected trace, in this order. `pytest tests/scenarios --rewrite-scenarios` replaces the expected traces by the actual
ones; review the diff.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SEPARATOR = "----"


@dataclass(frozen=True, slots=True)
class Block:
    comments: list[str]
    commands: list[str]
    expected: list[str]

    def text(self) -> str:
        lines = [*self.comments, *self.commands]
        if self.commands:
            lines += [SEPARATOR, *self.expected]
        return "\n".join(lines)


def parse(text: str) -> list[Block]:
    return [_parse_block(block.strip("\n").split("\n")) for block in text.split("\n\n") if block.strip()]


def check(path: Path, run: Callable[[str], list[str]], *, rewrite: bool) -> None:
    """Run a file's commands and compare, or rewrite the file."""
    before = path.read_text()
    blocks: list[Block] = []
    for block in parse(before):
        output = [line for command in block.commands for line in run(command)]
        blocks.append(Block(block.comments, block.commands, output or (["ok"] if block.commands else [])))
    after = "\n\n".join(block.text() for block in blocks) + "\n"
    if rewrite:
        path.write_text(after)
    else:
        assert after == before


def _parse_block(lines: list[str]) -> Block:
    comments = [line for line in lines if line.startswith("#")]
    rest = lines[len(comments) :]
    if SEPARATOR not in rest:
        return Block(comments, rest, [])
    at = rest.index(SEPARATOR)
    return Block(comments, rest[:at], rest[at + 1 :])
