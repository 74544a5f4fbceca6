"""A value for any setting that is not its default, where it has another one."""

from typing import Any

from logbrook.config.catalogue import DeclaredSetting, ValueKind, all_settings, settings_by_key
from logbrook.config.values import show_value

KEYS = [setting.key for setting in all_settings()]


def another_value(setting: DeclaredSetting) -> Any:
    kind = setting.form.kind
    if kind is ValueKind.BOOLEAN:
        return not setting.default
    if kind is ValueKind.INTEGER:
        return int(setting.facts.at_least or 0) + 12_345 % int(setting.facts.at_most or 1_000_000)
    if kind is ValueKind.CHOICES:
        return frozenset(setting.form.choices)
    if kind is ValueKind.CHOICE:
        return next((choice for choice in setting.form.choices if choice != setting.default), setting.default)
    return {ValueKind.NUMBER: 0.25, ValueKind.ADDRESS: "example.org:1234", ValueKind.LISTENERS: "A=h:1"}.get(
        kind, "/somewhere/else"
    )


def written(key: str) -> tuple[DeclaredSetting, str, Any]:
    """Return a setting, a text for it, and the value that the text is parsed to."""
    setting = settings_by_key()[key]
    value = another_value(setting)
    return setting, show_value(setting, value), value
