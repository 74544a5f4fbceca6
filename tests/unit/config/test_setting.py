"""Every setting: declared once, documented, bounded, immutable."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from logbrook.config import UNLIMITED, CleanupPolicy, Durability, LogConfig, StorageConfig, TimestampSource
from logbrook.config.setting import Settings

GROUPS: list[type[Settings]] = [LogConfig, StorageConfig]
ALL = [pytest.param(group, name, id=f"{group.__name__}.{name}") for group in GROUPS for name in group.model_fields]


def facts_of(group: type[Settings], name: str) -> dict[str, Any]:
    extra = group.model_fields[name].json_schema_extra
    assert isinstance(extra, dict)
    return dict(extra)


@pytest.mark.parametrize("group", GROUPS)
def test_the_defaults_are_valid(group: type[Settings]) -> None:
    assert group().model_dump() == group(**group().model_dump()).model_dump()


@pytest.mark.parametrize(("group", "name"), ALL)
def test_every_setting_says_in_a_sentence_what_it_does(group: type[Settings], name: str) -> None:
    doc = group.model_fields[name].description
    assert doc
    assert doc.endswith(".")


@pytest.mark.parametrize(("group", "name"), ALL)
def test_every_setting_has_its_facts(group: type[Settings], name: str) -> None:
    facts = facts_of(group, name)
    assert set(facts) == {"unit", "kafka", "dynamic", "flag"}
    assert isinstance(facts["dynamic"], bool)


@pytest.mark.parametrize(("group", "name"), ALL)
def test_a_name_tells_the_unit_that_is_declared(group: type[Settings], name: str) -> None:
    unit = facts_of(group, name)["unit"]
    parts = name.removesuffix("_max").split("_")
    assert unit == {"ms": "ms", "bytes": "bytes"}.get(parts[-1])


@pytest.mark.parametrize(("group", "name"), ALL)
def test_kafkas_name_is_the_setting_with_dots(group: type[Settings], name: str) -> None:
    kafka = facts_of(group, name)["kafka"]
    assert kafka in (None, name.replace("_", "."))


@pytest.mark.parametrize("name", LogConfig.model_fields)
def test_every_setting_of_a_topic_is_one_of_kafkas_and_may_change_at_run_time(name: str) -> None:
    assert facts_of(LogConfig, name)["kafka"]
    assert facts_of(LogConfig, name)["dynamic"]


@pytest.mark.parametrize(("group", "name"), ALL)
def test_a_setting_cannot_be_changed_in_place(group: type[Settings], name: str) -> None:
    config = group()
    with pytest.raises(ValidationError, match="frozen"):
        setattr(config, name, getattr(config, name))


@pytest.mark.parametrize("group", GROUPS)
def test_an_unknown_name_is_refused(group: type[Settings]) -> None:
    with pytest.raises(ValidationError, match="segment_byte"):
        group(**{"segment_byte": 1})


def bounds_of(group: type[Settings], name: str) -> tuple[float | None, float | None]:
    metadata = group.model_fields[name].metadata
    lowest = next((one.ge for one in metadata if hasattr(one, "ge")), None)
    highest = next((one.le for one in metadata if hasattr(one, "le")), None)
    return lowest, highest


@pytest.mark.parametrize(("group", "name"), ALL)
def test_a_value_at_its_bound_is_taken_and_one_past_it_is_refused(group: type[Settings], name: str) -> None:
    lowest, highest = bounds_of(group, name)
    for bound, past in ((lowest, -1), (highest, 1)):
        if bound is not None:
            assert getattr(group(**{name: bound}), name) == bound
            with pytest.raises(ValidationError, match=name):
                group(**{name: bound + past})


@pytest.mark.parametrize(("group", "name"), ALL)
def test_every_number_has_a_lower_bound(group: type[Settings], name: str) -> None:
    if isinstance(getattr(group(), name), int | float):
        assert bounds_of(group, name)[0] is not None


@pytest.mark.parametrize("value", ["many", None, 1.5, [1]])
def test_a_value_of_another_kind_is_refused(value: object) -> None:
    with pytest.raises(ValidationError):
        LogConfig(segment_bytes=value)


def test_kafkas_values_are_understood() -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime", cleanup_policy=["compact", "delete"])
    assert config.message_timestamp_type is TimestampSource.LOG_APPEND_TIME
    assert config.cleanup_policy == {CleanupPolicy.COMPACT, CleanupPolicy.DELETE}
    assert StorageConfig(durability="interval").durability is Durability.INTERVAL


@pytest.mark.parametrize(
    ("group", "setting"),
    [
        (LogConfig, {"cleanup_policy": ["shred"]}),
        (LogConfig, {"message_timestamp_type": "Never"}),
        (StorageConfig, {"durability": "maybe"}),
    ],
)
def test_a_value_that_is_none_of_the_choices_is_refused(group: type[Settings], setting: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        group(**setting)


@pytest.mark.parametrize("name", ["retention_ms", "retention_bytes"])
def test_retention_may_be_unlimited(name: str) -> None:
    assert getattr(LogConfig(**{name: UNLIMITED}), name) == -1
    with pytest.raises(ValidationError):
        LogConfig(**{name: -2})


def test_a_segment_is_never_too_large_for_its_index() -> None:
    with pytest.raises(ValidationError):
        LogConfig(segment_bytes=2**31)


@pytest.mark.parametrize("group", GROUPS)
def test_settings_come_back_from_json(group: type[Settings]) -> None:
    config = group()
    assert group.model_validate(json.loads(config.model_dump_json())) == config


def test_changing_one_setting_leaves_the_original_as_it_was() -> None:
    config = LogConfig()
    changed = config.model_copy(update={"segment_bytes": 1})
    assert (config.segment_bytes, changed.segment_bytes) == (1 << 30, 1)
