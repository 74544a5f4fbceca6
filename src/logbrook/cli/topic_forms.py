"""The JSON forms of topics and settings, which scripts rely on."""

from base64 import urlsafe_b64encode
from collections.abc import Iterable
from typing import Any

from logbrook.client.admin_results import Setting, SettingSource, TopicInfo

_SOURCES = {
    SettingSource.TOPIC: "topic",
    SettingSource.DYNAMIC_BROKER: "broker",
    SettingSource.DYNAMIC_DEFAULT_BROKER: "cluster",
    SettingSource.STATIC_BROKER: "broker's file",
    SettingSource.DEFAULT: "default",
}


def listed_as_json(topics: Iterable[TopicInfo]) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "partitions": len(one.partitions),
            "replicas": one.replication_factor,
            "offsets": one.offsets,
            "size_bytes": one.size_bytes,
            "internal": one.is_internal,
        }
        for one in topics
    ]


def described_as_json(topic: TopicInfo, settings: Iterable[Setting]) -> dict[str, Any]:
    return {
        "name": topic.name,
        # As Kafka's own tools write it.
        "id": urlsafe_b64encode(topic.id).decode().rstrip("="),
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": one.partition,
                "leader": one.leader,
                "leader_epoch": one.leader_epoch,
                "replicas": list(one.replicas),
                "in_sync_replicas": list(one.in_sync_replicas),
                "start_offset": one.start_offset,
                "end_offset": one.end_offset,
                "size_bytes": one.size_bytes,
            }
            for one in topic.partitions
        ],
        "settings": settings_as_json(settings),
    }


def settings_as_json(settings: Iterable[Setting]) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "value": one.value,
            "source": one.source.name.lower(),
            "default": one.default,
            "read_only": one.is_read_only,
            "sensitive": one.is_sensitive,
        }
        for one in settings
    ]


def changed_settings(settings: Iterable[Setting]) -> list[Setting]:
    """Those that somebody has set, for the topic or for the brokers."""
    return [one for one in settings if not one.is_default]


def shown_source(setting: Setting) -> str:
    """Where a value is from, in a word."""
    return _SOURCES.get(setting.source, setting.source.name.lower())
