"""Paths and links in README.md, docs/ and docs/adr/ exist in the repository."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/adr/*.md")])
# A path in backticks may omit these leading folders, as `storage/log.py` and `unit/storage` do.
PREFIXES = ("", "src/", "src/logbrook/", "tests/", "docs/", "tests/unit/")
TOP_FOLDERS = {"bench", "docs", "examples", "demo", "tools", "src", "tests"}
PACKAGES = {path.name for path in (ROOT / "src" / "logbrook").iterdir() if path.is_dir()}
TEST_FOLDERS = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
SOURCE_SUFFIXES = (".py", ".md", ".toml", ".sh", ".svg", ".png")


def links(text: str) -> Iterator[str]:
    """Return the relative targets of Markdown links and images, without their fragments."""
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:|#", target):
            yield target.partition("#")[0]


def paths(text: str) -> Iterator[str]:
    """Return the backticked paths that begin with a folder of the repository, braces expanded, code blocks ignored."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for span in re.findall(r"`([\w./*{},-]+)`", prose):
        first = span.partition("/")[0]
        if "/" in span and first in TOP_FOLDERS | PACKAGES | TEST_FOLDERS:
            yield from expanded(span)


def expanded(span: str) -> list[str]:
    braces = re.search(r"\{([^}]*)\}", span)
    if braces is None:
        return [span]
    return [span[: braces.start()] + name + span[braces.end() :] for name in braces[1].split(",")]


def is_in_repository(path: str) -> bool:
    return any(any(ROOT.glob(f"{prefix}{path.rstrip('/')}")) for prefix in PREFIXES)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_lead_to_files(document: Path) -> None:
    missing = [target for target in links(document.read_text()) if not (document.parent / target).exists()]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_in_backticks_exist(document: Path) -> None:
    missing = sorted({path for path in paths(document.read_text()) if not is_in_repository(path)})
    assert missing == []


@pytest.mark.parametrize(
    "document", [path for path in DOCUMENTS if path.name != "CHANGELOG.md"], ids=lambda path: path.name
)
def test_nothing_is_installed_from_an_index_that_does_not_have_it(document: Path) -> None:
    assert not re.findall(r"pip install '?logbrook", document.read_text()), "install from a clone: pip install ."
