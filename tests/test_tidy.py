"""The habits that a formatter cannot see, as rules: sizes, docstrings, and words that should not be in the tree."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
EVERYTHING = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "bench").rglob("*.py"))]

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
# A marker of unfinished work, spelled so that this file does not hold it.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), "it has no docstring"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_module_has_one_noun(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= MODULE_LINES_MAX, f"{lines} lines: look for the second noun in it"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_function_fits_a_screen(path: Path) -> None:
    for function in functions_of(path):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        assert lines <= FUNCTION_LINES_MAX, f"{function.name} has {lines} lines"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_name_says_what_it_is(path: Path) -> None:
    assert path.stem not in {"utils", "util", "helpers", "common", "misc"}


@pytest.mark.parametrize("path", EVERYTHING, ids=name_of)
def test_nothing_is_left_for_later(path: Path) -> None:
    found = UNFINISHED.search(path.read_text())
    assert found is None, f"{found[0]} is in it" if found else ""


@pytest.mark.parametrize("path", EVERYTHING, ids=name_of)
def test_nothing_waits_by_sleeping(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    # `asyncio.sleep(0)` waits for nothing: it gives the others a turn.
    waits = [call for call in calls if ast.unparse(call) != "asyncio.sleep(0)"]
    sleeps = [call.lineno for call in waits if isinstance(call.func, ast.Attribute) and call.func.attr == "sleep"]
    assert sleeps == [], "a sleep hopes; wait for what you need instead"
