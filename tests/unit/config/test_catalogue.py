"""Every setting: its flag, environment variable and key in the file."""

from dataclasses import asdict

from logbrook.config import BrokerConfig
from logbrook.config.catalogue import ValueKind, all_sections, all_settings, settings_by_key
from logbrook.config.values import read_value, show_value
from tests.unit.config.samples import KEYS

SHORT_FLAGS = {
    "security.protocol": "--security-protocol",
    "security.protocols": "--listener-protocol",
    "security.authorization": "--authorization",
    "network.listen": "--listen",
    "node_id": "--node",
    "cluster.store": "--cluster",
    "cluster.rack": "--rack",
    "network.advertise": "--advertise",
    "network.advertised_listeners": "--advertised-listener",
    "network.listeners": "--listener",
    "network.json_listen": "--json-port",
    "topics.auto_create": "--auto-create-topics",
    "topics.partitions": "--partitions",
    "groups.offsets": "--offsets",
    "storage.durability": "--durability",
    "maintenance.mode": "--maintenance",
    "metrics.listen": "--metrics",
    "console.listen": "--console",
    "logging.format": "--log-format",
    "logging.level": "--log-level",
}


def test_a_flag_is_section_and_name_unless_a_shorter_one_is_declared() -> None:
    for key in KEYS:
        by_rule = "--" + key.replace(".", "-").replace("_", "-")
        assert settings_by_key()[key].flag == SHORT_FLAGS.get(key, by_rule), key


def test_a_variable_is_the_flag_in_capitals() -> None:
    for key in KEYS:
        setting = settings_by_key()[key]
        assert setting.variable == "LOGBROOK_" + setting.flag[2:].upper().replace("-", "_"), key


def test_no_two_settings_share_a_name() -> None:
    settings = all_settings()
    assert len({setting.key for setting in settings}) == len(settings)
    assert len({setting.variable for setting in settings}) == len(settings)
    every_flag = [flag for setting in settings for flag in {setting.flag, setting.long_flag}]
    assert len(set(every_flag)) == len(every_flag)


def test_no_setting_is_called_like_an_option_of_the_commands() -> None:
    reserved = {"--config", "--help", "--json", "--version"}
    assert not reserved & {setting.flag for setting in all_settings()}
    negations = {f"--no-{setting.flag[2:]}" for setting in all_settings() if setting.form.kind is ValueKind.BOOLEAN}
    assert not negations & {setting.flag for setting in all_settings()}


def test_every_field_of_the_declaration_is_there() -> None:
    fields = []
    for name, value in asdict(BrokerConfig()).items():
        fields += [f"{name}.{inner}" for inner in value] if isinstance(value, dict) else [name]
    assert sorted(KEYS) == sorted(fields)


def test_every_section_has_a_title_and_a_setting() -> None:
    for section in all_sections():
        assert section.title
        assert not section.title.endswith(": ")
        assert any(setting.section == section.name for setting in all_settings())


def test_a_default_can_be_written() -> None:
    for key in KEYS:
        setting = settings_by_key()[key]
        assert read_value(setting, show_value(setting, setting.default)) == setting.default, key


def test_every_setting_that_says_host_and_port_takes_only_such() -> None:
    for key in KEYS:
        setting = settings_by_key()[key]
        assert setting.facts.doc.startswith("HOST:PORT") == (setting.form.kind is ValueKind.ADDRESS), key
