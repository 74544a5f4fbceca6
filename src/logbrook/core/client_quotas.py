"""Client quotas as a state machine: only `replay` changes the state (KIP-13, KIP-124, KIP-546, KIP-599, KIP-612).

    change = quotas.alter([QuotaAlteration([("user", "alice")], [("producer_byte_rate", 1e6)])])
    for key, value in change.records: quotas.replay(key, value)
    quotas.limit(QuotaKey.PRODUCER_BYTE_RATE, "alice", "app")       # QuotaLimit(("alice", None), 1e6)

The quota of a client is the first of these that is set, as in Kafka:

    user + client id, user + default client id, user,
    default user + client id, default user + default client id, default user,
    client id, default client id

Entities with a client id give each client id its own rate, the others share one among all clients of the user. Unlike
in Kafka, the default client id applies to clients without one too: leaving it out would evade the quota.

The store has one record per entity: its value is a JSON object with the entity's quotas.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from logbrook.core.quota_entities import (
    EntityType,
    InvalidQuotaError,
    QuotaEntity,
    QuotaKey,
    canonical_address,
    checked_entity,
    checked_key,
    checked_value,
    entity_of,
    in_words,
    quota_key,
)

# A key of the metadata store and its new value, None if it is deleted.
QuotaRecord: TypeAlias = tuple[str, bytes | None]

# Resolved limits that are remembered. Clients choose their ids, so their number has no other bound.
_LIMITS_MAX = 10_000


class QuotaAlteration(NamedTuple):
    """Changes of one entity's quotas, as a client sends them. The value None removes a quota."""

    entity: Sequence[tuple[str, str | None]]
    changes: Sequence[tuple[str, float | None]]


class QuotaChange(NamedTuple):
    """The records of a valid change, and for each alteration its error or None."""

    records: list[QuotaRecord]
    errors: list[InvalidQuotaError | None]


class NameMatch(NamedTuple):
    """The names of an entity type that a filter accepts: any, or exactly one, None for the default."""

    is_any: bool
    name: str | None = None


class QuotaLimit(NamedTuple):
    """The quota of a client: who shares it (user and client id; None is all of them), and its value."""

    owner: tuple[str | None, str | None]
    rate: float


class ClientQuotas:
    """All quotas of the cluster. On the event loop."""

    def __init__(self) -> None:
        self._quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._limits: dict[tuple[QuotaKey, str, str], QuotaLimit | None] = {}
        self._address_count = 0
        # False while no client's requests, or no address' connections, have to be counted.
        self.has_client_quotas = False
        self.has_address_quotas = False

    def __len__(self) -> int:
        return len(self._quotas)

    def limit(self, key: QuotaKey, user: str, client_id: str) -> QuotaLimit | None:
        """Return the quota of a client, None without one."""
        limits = self._limits
        try:
            return limits[key, user, client_id]
        except KeyError:
            if len(limits) >= _LIMITS_MAX:
                limits.clear()
            limit = limits[key, user, client_id] = self._resolve(key, user, client_id)
            return limit

    def connection_rate(self, address: str) -> float | None:
        """Return the connections per second that an IP address may open, None without a quota."""
        for name in (canonical_address(address), None):
            quotas = self._quotas.get(((EntityType.IP, name),), {})
            if QuotaKey.CONNECTION_CREATION_RATE in quotas:
                return quotas[QuotaKey.CONNECTION_CREATION_RATE]
        return None

    def describe(
        self, components: Mapping[EntityType, NameMatch], *, is_strict: bool = False
    ) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
        """Return the entities that match, with their quotas, in a stable order.

        An entity matches if it has all types of the filter with names that it accepts; with `is_strict`, no others.
        Raises InvalidQuotaError.
        """
        if EntityType.IP in components and len(components) > 1:
            raise InvalidQuotaError("a filter for ip may not have a user or client-id too")
        matches = [
            (entity, quotas)
            for entity, quotas in self._quotas.items()
            if _matches(dict(entity), components) and not (is_strict and len(entity) != len(components))
        ]
        return sorted(matches, key=lambda match: quota_key(match[0]))

    def alter(self, alterations: Sequence[QuotaAlteration]) -> QuotaChange:
        """Validate each alteration on its own; one with an error changes nothing."""
        records: list[QuotaRecord] = []
        errors: list[InvalidQuotaError | None] = []
        altered: set[QuotaEntity] = set()
        for alteration in alterations:
            try:
                entity = checked_entity(alteration.entity)
                if entity in altered:
                    raise InvalidQuotaError(f"the request has {in_words(entity)} more than once")
                altered.add(entity)
                records += self._changed(entity, alteration.changes)
                errors.append(None)
            except InvalidQuotaError as error:
                errors.append(error)
        return QuotaChange(records, errors)

    def replay(self, key: str, value: bytes | None) -> None:
        """Apply a record. Raises ValueError for a record that `ClientQuotas` has not written."""
        entity = entity_of(key)
        quotas = None if value is None else _decoded(value)
        is_address = entity[0][0] is EntityType.IP
        self._address_count -= is_address and entity in self._quotas
        self._quotas.pop(entity, None)
        if quotas is not None:
            self._quotas[entity] = quotas
            self._address_count += is_address
        self._limits.clear()
        self.has_address_quotas = self._address_count > 0
        self.has_client_quotas = len(self._quotas) > self._address_count

    def validate(self) -> None:
        """Assert the invariants that hold between any two calls."""
        for entity, quotas in self._quotas.items():
            assert quotas, "an entity without quotas has no record"
            assert entity_of(quota_key(entity)) == entity
        addresses = [entity for entity in self._quotas if entity[0][0] is EntityType.IP]
        assert self.has_address_quotas == bool(addresses)
        assert self.has_client_quotas == (len(addresses) < len(self._quotas))

    def _resolve(self, key: QuotaKey, user: str, client_id: str) -> QuotaLimit | None:
        for entity, owner in _precedence(user, client_id):
            quotas = self._quotas.get(entity)
            if quotas is not None and key in quotas:
                return QuotaLimit(owner, quotas[key])
        return None

    def _changed(self, entity: QuotaEntity, changes: Sequence[tuple[str, float | None]]) -> list[QuotaRecord]:
        """Return the record of the entity's new quotas, none if they stay the same. Raises InvalidQuotaError."""
        names = [key for key, _ in changes]
        if len(set(names)) < len(names):
            raise InvalidQuotaError(f"a quota of {in_words(entity)} is changed more than once")
        before = self._quotas.get(entity, {})
        after = dict(before)
        for key, value in changes:
            if value is None:
                after.pop(key, None)
            else:
                checked = checked_key(entity, key)
                after[checked] = checked_value(checked, value)
        if after == before:
            return []
        return [(quota_key(entity), _encoded(after) if after else None)]


def _precedence(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, tuple[str | None, str | None]]]:
    """Yield the entities that apply to a client, the most specific first, and who shares the quota of each."""
    own, of_user, of_client = (user, client_id), (user, None), (None, client_id)
    users: tuple[str | None, ...] = (user, None)
    clients: tuple[str | None, ...] = (client_id, None)
    for user_name in users:
        for client_name in clients:
            yield ((EntityType.USER, user_name), (EntityType.CLIENT_ID, client_name)), own
        yield ((EntityType.USER, user_name),), of_user
    for client_name in clients:
        yield ((EntityType.CLIENT_ID, client_name),), of_client


def _matches(entity: Mapping[EntityType, str | None], components: Mapping[EntityType, NameMatch]) -> bool:
    return all(
        kind in entity and (accepted.is_any or entity[kind] == accepted.name) for kind, accepted in components.items()
    )


def _encoded(quotas: Mapping[str, float]) -> bytes:
    return json.dumps(quotas, sort_keys=True, separators=(",", ":")).encode()


def _decoded(value: bytes) -> dict[str, float]:
    """Raises ValueError."""
    content: Any = json.loads(value)
    if not isinstance(content, dict) or not content:
        raise ValueError("the record of a quota has no object with quotas")
    return {QuotaKey(key): float(rate) for key, rate in content.items()}
