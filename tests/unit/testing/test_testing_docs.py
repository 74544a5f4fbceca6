"""The examples of docs/TESTING.md, run as tests."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

DOCUMENT = Path(__file__).parents[3] / "docs" / "TESTING.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_pass(pytester: pytest.Pytester, number: int) -> None:
    pytester.makepyfile(EXAMPLES[number])
    result = pytester.runpytest_inprocess("-q")
    result.assert_outcomes(passed=EXAMPLES[number].count("\ndef test_") + EXAMPLES[number].startswith("def test_"))


def test_the_document_has_examples() -> None:
    assert len(EXAMPLES) >= 5
