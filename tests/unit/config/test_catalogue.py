"""Every setting: what the command line, the environment and the file call it."""

from dataclasses import asdict

import pytest

from logbrook.config import BrokerConfig
from logbrook.config.catalogue import Kind, all_sections, all_settings, settings_by_key
from logbrook.config.values import read_value, show_value
from tests.unit.config.samples import KEYS

SHORT_FLAGS = {
    "network.listen": "--listen",
    "network.advertise": "--advertise",
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


@pytest.mark.parametrize("key", KEYS)
def test_a_flag_is_section_and_name_unless_a_shorter_one_is_declared(key: str) -> None:
    by_rule = "--" + key.replace(".", "-").replace("_", "-")
    assert settings_by_key()[key].flag == SHORT_FLAGS.get(key, by_rule)


@pytest.mark.parametrize("key", KEYS)
def test_a_variable_is_the_flag_in_capitals(key: str) -> None:
    setting = settings_by_key()[key]
    assert setting.variable == "LOGBROOK_" + setting.flag[2:].upper().replace("-", "_")


def test_no_two_settings_share_a_name() -> None:
    settings = all_settings()
    assert len({setting.key for setting in settings}) == len(settings)
    assert len({setting.variable for setting in settings}) == len(settings)
    every_flag = [flag for setting in settings for flag in {setting.flag, setting.long_flag}]
    assert len(set(every_flag)) == len(every_flag)


def test_no_setting_is_called_like_an_option_of_the_commands() -> None:
    reserved = {"--config", "--help", "--json", "--version"}
    assert not reserved & {setting.flag for setting in all_settings()}
    negations = {f"--no-{setting.flag[2:]}" for setting in all_settings() if setting.form.kind is Kind.BOOLEAN}
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


@pytest.mark.parametrize("key", KEYS)
def test_a_default_can_be_written(key: str) -> None:
    setting = settings_by_key()[key]
    assert read_value(setting, show_value(setting, setting.default)) == setting.default


@pytest.mark.parametrize("key", KEYS)
def test_every_setting_that_says_host_and_port_takes_only_such(key: str) -> None:
    setting = settings_by_key()[key]
    assert setting.doc.startswith("HOST:PORT") == (setting.form.kind is Kind.ADDRESS)
