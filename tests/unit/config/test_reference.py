"""docs/SETTINGS.md is generated from the declarations."""

from pathlib import Path

from logbrook.config.catalogue import settings_by_key
from logbrook.config.reference import settings_reference
from tests.unit.config.samples import KEYS

DOCUMENT = Path(__file__).parents[3] / "docs" / "SETTINGS.md"


def test_settings_md_is_up_to_date() -> None:
    assert DOCUMENT.read_text() == settings_reference(), "run: python -m logbrook.config.reference > docs/SETTINGS.md"


def test_every_setting_is_in_it_once_under_each_of_its_names() -> None:
    for key in KEYS:
        setting = settings_by_key()[key]
        assert settings_reference().count(f"\n`{setting.flag}` · `{setting.variable}`") == 1, key
