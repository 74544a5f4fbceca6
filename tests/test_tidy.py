"""Rules of style that a formatter cannot check: sizes, docstrings, names, and words that must not be in the tree.

Every file is parsed once. A rule collects all its violations, so that one failure names every file to correct.
"""

import ast
import gc
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conftest import SECONDS, SLOW
from tests.syntax import syntax_tree

ROOT = Path(__file__).parent.parent
SOURCES = "src"
FOLDERS = (SOURCES, "tests", "bench", "demo", "examples", "tools")

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
# Markers of unfinished work, spelled so that this file does not contain them.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
VAGUE_MODULE_NAMES = {"utils", "util", "helpers", "common", "misc"}
# A docstring states a contract: "Return True if ...", not "Whether ...".
VAGUE_OPENING = re.compile(r"\W*(What|Whether|Those|Who|Nobody|Something|How|Which|Why)\b")
# A test's name is a rule with a subject: "an unknown producer cannot end a transaction", not "who is not known ...".
VAGUE_TEST = re.compile(r"test_(what|whatever|whichever|who|nobody|unless)_")
VAGUE_VARIABLES = {"one", "found", "told", "who"}
# The classes of Kafka's messages are named after Kafka's schemas.
GENERATED = "src/logbrook/protocol/messages/"
# Templates are files that users copy, not a package.
TEMPLATES = "/templates/"


@dataclass
class File:
    """The facts about one Python file that the rules are about. Violations are given as `path:line: text`."""

    path: str
    lines: int
    has_docstring: bool
    unfinished: list[str] = field(default_factory=list)
    long_functions: list[str] = field(default_factory=list)
    sleeps: list[str] = field(default_factory=list)
    vague_docstrings: list[str] = field(default_factory=list)
    vague_tests: list[str] = field(default_factory=list)
    vague_variables: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)

    @property
    def is_source(self) -> bool:
        return self.path.startswith(f"{SOURCES}/")

    def violation(self, node: ast.stmt | ast.expr, text: str) -> str:
        return f"{self.path}:{node.lineno}: {text}"


def read_file(path: Path) -> File:
    text = path.read_text()
    tree = syntax_tree(text)
    file = File(str(path.relative_to(ROOT)), len(text.splitlines()), ast.get_docstring(tree) is not None)
    for number, line in enumerate(text.splitlines(), 1):
        file.unfinished += [f"{file.path}:{number}: {marker[0]}" for marker in UNFINISHED.finditer(line)]
    read_docstring(file, tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            read_function(file, node)
            read_docstring(file, node)
        elif isinstance(node, ast.Call):
            read_call(file, node)
        elif isinstance(node, ast.ClassDef):
            file.classes.append(node.name)
            read_docstring(file, node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE_VARIABLES:
            file.vague_variables.append(file.violation(node, node.id))
    return file


def read_docstring(file: File, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    docstring = ast.get_docstring(node) or ""
    if VAGUE_OPENING.match(docstring):
        file.vague_docstrings.append(file.violation(node.body[0], docstring.partition("\n")[0]))


def read_function(file: File, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    if VAGUE_TEST.match(function.name):
        file.vague_tests.append(file.violation(function, function.name))
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if lines > FUNCTION_LINES_MAX:
        file.long_functions.append(file.violation(function, f"{function.name} has {lines} lines"))


def read_call(file: File, call: ast.Call) -> None:
    # `asyncio.sleep(0)` waits for nothing: it lets other tasks run.
    if isinstance(call.func, ast.Attribute) and call.func.attr == "sleep" and ast.unparse(call) != "asyncio.sleep(0)":
        file.sleeps.append(file.violation(call, ast.unparse(call)))


def all_paths() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))


@pytest.fixture(scope="module")
def files() -> list[File]:
    # Syntax trees are many objects and no cycles: collecting garbage would add half to the time.
    gc.disable()
    try:
        return [read_file(path) for path in all_paths()]
    finally:
        gc.enable()


@pytest.fixture(scope="module")
def sources(files: list[File]) -> list[File]:
    return [file for file in files if file.is_source]


def test_every_folder_has_files(files: list[File]) -> None:
    assert {file.path.partition("/")[0] for file in files} == set(FOLDERS)


def test_every_module_has_a_docstring(sources: list[File]) -> None:
    assert [file.path for file in sources if not file.has_docstring] == []


def test_modules_have_at_most_500_lines(sources: list[File]) -> None:
    assert [f"{file.path}: {file.lines} lines" for file in sources if file.lines > MODULE_LINES_MAX] == []


def test_functions_have_at_most_70_lines(sources: list[File]) -> None:
    assert [violation for file in sources for violation in file.long_functions] == []


def test_modules_are_named_after_their_subject(sources: list[File]) -> None:
    assert [file.path for file in sources if Path(file.path).stem in VAGUE_MODULE_NAMES] == []


def test_no_work_is_marked_as_unfinished(files: list[File]) -> None:
    assert [violation for file in files for violation in file.unfinished] == []


def test_nothing_sleeps_to_wait_for_a_condition(files: list[File]) -> None:
    assert [violation for file in files for violation in file.sleeps] == []


def test_docstrings_state_a_contract(files: list[File]) -> None:
    assert [violation for file in files for violation in file.vague_docstrings] == []


def test_tests_are_named_after_the_rule_they_prove(files: list[File]) -> None:
    assert [violation for file in files for violation in file.vague_tests] == []


def test_variables_are_named_after_their_content(files: list[File]) -> None:
    assert [violation for file in files for violation in file.vague_variables] == []


def test_class_names_are_unique(sources: list[File]) -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file in sources:
        for name in file.classes if not file.path.startswith(GENERATED) else ():
            places[name].append(file.path)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_every_package_has_an_init_file(sources: list[File]) -> None:
    folders = {Path(file.path).parent for file in sources if TEMPLATES not in file.path}
    packages = {Path(file.path).parent for file in sources if Path(file.path).name == "__init__.py"}
    assert folders - packages == set()


def test_paths_of_costly_and_slow_tests_exist() -> None:
    """`make test` is ordered by some paths, and `make test-fast` leaves others out."""
    tests = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    assert [path for path in (*SECONDS, *SLOW) if not any(test.startswith(path) for test in tests)] == []
