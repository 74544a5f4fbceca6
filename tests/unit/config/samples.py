"""A value for any setting that is not its default, where it has another one."""

from typing import Any

from logbrook.config.catalogue import Declared, Kind, all_settings, settings_by_key
from logbrook.config.values import show_value

KEYS = [setting.key for setting in all_settings()]


def another_value(setting: Declared) -> Any:
    kind = setting.form.kind
    if kind is Kind.BOOLEAN:
        return not setting.default
    if kind is Kind.INTEGER:
        return int(setting.at_least or 0) + 12_345 % int(setting.at_most or 1_000_000)
    if kind is Kind.CHOICES:
        return frozenset(setting.form.choices)
    if kind is Kind.CHOICE:
        return next((choice for choice in setting.form.choices if choice != setting.default), setting.default)
    return {Kind.NUMBER: 0.25, Kind.ADDRESS: "example.org:1234"}.get(kind, "/somewhere/else")


def written(key: str) -> tuple[Declared, str, Any]:
    """A setting, a text for it, and the value that the text stands for."""
    setting = settings_by_key()[key]
    value = another_value(setting)
    return setting, show_value(setting, value), value
