"""Settings of topics and brokers on the command line: KEY=VALUE with Kafka's names, and rows of tables.

Kafka's values are plain numbers. A value of a setting in ms or bytes may also have a unit, as in the settings of
`serve`: retention.ms=7d, segment.bytes=64MiB.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from logbrook.cli.failures import fail, refuse
from logbrook.cli.terminal import Column
from logbrook.client.admin_results import Setting
from logbrook.config.kafka_settings import similar_setting
from logbrook.config.topics import UNLIMITED
from logbrook.config.values import UNIT_FORMS, read_quantity

VALUE_FORMS = (
    "A VALUE in ms may be a duration (30s, 12h, 7d), one in bytes a size (64MiB, 1GB); retention may be unlimited."
)

_SOURCES = {"dynamic_broker": "broker", "dynamic_default_broker": "cluster", "static_broker": "broker's file"}
# The column of a setting's source.
SET_FOR: Column = ("set for", lambda row: _SOURCES.get(row["source"], row["source"]))

_RETENTION = ("retention.ms", "retention.bytes")


def parse_settings(arguments: Iterable[str], option: str) -> dict[str, str]:
    """Return the values by name, in Kafka's notation; end the command with an error about `option` if one is invalid.

    Which names and numbers are allowed is left to the broker.
    """
    values = {}
    for argument in arguments:
        name, separator, value = argument.partition("=")
        if not name or not separator:
            refuse(option, f"{argument!r} is not KEY=VALUE")
        if name in values:
            refuse(option, f"{name} is given twice")
        values[name] = _in_kafka_notation(name, value.strip(), option)
    return values


def refuse_unknown(names: Iterable[str], settings: Sequence[Setting], resource: str, listing: str) -> None:
    """End the command if one of `names` is not among the settings: brokers ignore the removal of an unknown name.

    `listing` is the command that lists the settings of `resource`.
    """
    known = [setting.name for setting in settings]
    for name in names:
        if name not in known:
            similar = similar_setting(name, known)
            advice = f"did you mean {similar}?" if similar else f"`{listing}` lists them"
            fail(f"{resource} has no setting {name!r}; {advice}")


def setting_json(setting: Setting) -> dict[str, Any]:
    """Return a setting for JSON and tables."""
    return {
        "name": setting.name,
        "value": setting.value,
        "source": setting.source.name.lower(),
        "default": setting.default,
        "read_only": setting.is_read_only,
        "sensitive": setting.is_sensitive,
    }


def _in_kafka_notation(name: str, text: str, option: str) -> str:
    unit = next((unit for unit in UNIT_FORMS if unit in name.split(".")), None)
    if unit is None or not any(character.isalpha() for character in text):
        return text
    if text.casefold() == "unlimited" and name.endswith(_RETENTION):
        return str(UNLIMITED)
    try:
        return str(read_quantity(text, unit))
    except (ValueError, KeyError):
        refuse(option, f"{name}={text}, but it must be a number of {unit} or {UNIT_FORMS[unit]}")
