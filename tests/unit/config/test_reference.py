"""docs/SETTINGS.md, which is made from the declarations."""

from pathlib import Path

import pytest

from logbrook.config.catalogue import settings_by_key
from logbrook.config.reference import settings_reference
from tests.unit.config.samples import KEYS

DOCUMENT = Path(__file__).parents[3] / "docs" / "SETTINGS.md"


def test_the_document_is_fresh() -> None:
    assert DOCUMENT.read_text() == settings_reference(), "run: python -m logbrook.config.reference > docs/SETTINGS.md"


@pytest.mark.parametrize("key", KEYS)
def test_every_setting_is_in_it_once_under_each_of_its_names(key: str) -> None:
    setting = settings_by_key()[key]
    assert settings_reference().count(f"\n`{setting.flag}` · `{setting.variable}`") == 1
