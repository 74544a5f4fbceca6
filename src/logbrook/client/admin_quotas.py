"""Administration of client quotas (KIP-546): limits of users, client ids, both together, and addresses.

An entity is a mapping of its parts: {"user": "alice"}, {"user": "alice", "client-id": None}, {"ip": "10.0.0.7"}. None
is the default of the type, which applies to every name without a quota of its own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from logbrook.client.client import Client
from logbrook.client.errors import check_code
from logbrook.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from logbrook.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

QuotaTarget: TypeAlias = Mapping[str, str | None]

USER_PART = "user"
CLIENT_ID_PART = "client-id"
IP_PART = "ip"


class _Match(IntEnum):
    EXACT = 0
    DEFAULT = 1


@dataclass(frozen=True, slots=True)
class QuotaInfo:
    """The limits of an entity by Kafka's name of the quota."""

    entity: dict[str, str | None]
    limits: dict[str, float]


class QuotaAdmin:
    """Every call may raise ClientError."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def select(self, target: QuotaTarget | None = None) -> list[QuotaInfo]:
        """Return the quotas of all entities that have these parts and perhaps others, by entity."""
        components = [_component(part, name) for part, name in (target or {}).items()]
        response = self._client.request(
            DescribeClientQuotasRequest(components=components, strict=False), DescribeClientQuotasResponse
        )
        check_code(response.error_code, "listing quotas", response.error_message)
        quotas = [
            QuotaInfo(
                {part.entity_type: part.entity_name for part in entry.entity},
                {limit.key: limit.value for limit in sorted(entry.values, key=lambda limit: limit.key)},
            )
            for entry in response.entries or ()
        ]
        parts = (USER_PART, CLIENT_ID_PART, IP_PART)
        return sorted(quotas, key=lambda quota: [quota.entity.get(part) or "" for part in parts])

    def set(self, target: QuotaTarget, limits: Mapping[str, float]) -> None:
        """Set limits of an entity; its others stay."""
        self._alter(target, [OpData(key=key, value=value) for key, value in limits.items()], "setting")

    def remove(self, target: QuotaTarget, keys: Iterable[str]) -> None:
        """Remove limits of an entity."""
        self._alter(target, [OpData(key=key, remove=True) for key in keys], "removing")

    def _alter(self, target: QuotaTarget, changes: list[OpData], verb: str) -> None:
        entity = [EntityData(entity_type=part, entity_name=name) for part, name in target.items()]
        request = AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=changes)])
        response = self._client.request_controller(request, AlterClientQuotasResponse)
        for entry in response.entries:
            check_code(entry.error_code, f"{verb} quotas of {target_text(target)}", entry.error_message)


def target_text(target: QuotaTarget) -> str:
    """Describe an entity, as in "user alice, default client-id"."""
    return ", ".join(f"default {part}" if name is None else f"{part} {name}" for part, name in target.items())


def _component(part: str, name: str | None) -> ComponentData:
    match_type = _Match.DEFAULT if name is None else _Match.EXACT
    return ComponentData(entity_type=part, match_type=match_type, match=name)
