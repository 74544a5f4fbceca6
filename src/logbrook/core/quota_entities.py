"""Entities that have quotas, the keys and values of quotas, and the rules for both, as in Kafka.

An entity is a user, a client id, both, or an IP address; the name None is the default of its type. Users and client
ids have rates of bytes, request time and changes of partitions; addresses have a rate of connections.

The key of an entity in the metadata store is `quotas/` and its types, each with `=` and its percent-encoded name unless
it is the default: `quotas/user=alice/client-id`.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from ipaddress import IPv6Address, ip_address
from math import isfinite
from typing import TypeAlias
from urllib.parse import quote, unquote

from logbrook.model import LogbrookError

QUOTA_PREFIX = "quotas/"
_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1
_FRACTION_MAX = 1e-6


class EntityType(StrEnum):
    """Types of entities that have quotas, in the order in which an entity names them."""

    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"


class QuotaKey(StrEnum):
    """Kinds of quotas, with Kafka's names."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


# The largest value of the keys whose values are whole numbers.
_WHOLE_NUMBERS = {
    QuotaKey.PRODUCER_BYTE_RATE: _LONG_MAX,
    QuotaKey.CONSUMER_BYTE_RATE: _LONG_MAX,
    QuotaKey.CONNECTION_CREATION_RATE: _INT_MAX,
}

# The types and names of an entity, in the order of `EntityType`. The name None is the default of its type.
QuotaEntity: TypeAlias = tuple[tuple[EntityType, str | None], ...]

ENTITY_TYPES = frozenset(kind.value for kind in EntityType)
_KEYS = frozenset(key.value for key in QuotaKey)


def quota_key(entity: QuotaEntity) -> str:
    """Return the key of the entity's record in the metadata store."""
    return QUOTA_PREFIX + "/".join(kind if name is None else f"{kind}={quote(name, safe='')}" for kind, name in entity)


def entity_of(key: str) -> QuotaEntity:
    """Raises ValueError."""
    parts = (part.partition("=") for part in key.removeprefix(QUOTA_PREFIX).split("/"))
    return tuple((EntityType(kind), unquote(name) if equals else None) for kind, equals, name in parts)


def checked_entity(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """Raises InvalidQuotaError."""
    names: dict[EntityType, str | None] = {}
    for kind, name in parts:
        if kind not in ENTITY_TYPES:
            raise InvalidQuotaError(f"there are no quotas for entities of type {kind[:100]!r}")
        if name == "":
            raise InvalidQuotaError(f"the name of a {kind} may not be empty; null is the default")
        if kind in names:
            raise InvalidQuotaError(f"an entity may have only one {kind}")
        names[EntityType(kind)] = name
    if not names:
        raise InvalidQuotaError("an entity needs a user, a client-id or an ip")
    if EntityType.IP in names:
        names[EntityType.IP] = _checked_address(names)
    return tuple((kind, names[kind]) for kind in EntityType if kind in names)


def _checked_address(names: Mapping[EntityType, str | None]) -> str | None:
    """Raises InvalidQuotaError."""
    if len(names) > 1:
        raise InvalidQuotaError("an entity with an ip may not have a user or client-id too")
    address = names[EntityType.IP]
    if address is None:
        return None
    try:
        ip_address(address)
    except ValueError:
        raise InvalidQuotaError(f"{address[:100]!r} is not an IP address") from None
    return canonical_address(address)


def canonical_address(address: str) -> str:
    """Return the shortest form of an address; one of IPv4 within IPv6 is that of IPv4."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return str(mapped or parsed)


def checked_key(entity: QuotaEntity, key: str) -> QuotaKey:
    """Raises InvalidQuotaError."""
    is_of_address = key == QuotaKey.CONNECTION_CREATION_RATE
    if key not in _KEYS or is_of_address != (entity[0][0] is EntityType.IP):
        raise InvalidQuotaError(f"{key[:100]!r} is not a quota of {in_words(entity)}")
    return QuotaKey(key)


def checked_value(key: QuotaKey, value: float) -> float:
    """Raises InvalidQuotaError."""
    if not (isfinite(value) and value > 0):
        raise InvalidQuotaError(f"{key} must be greater than 0, not {value}; remove it to have no limit")
    largest = _WHOLE_NUMBERS.get(key)
    if largest is not None and value > largest:
        raise InvalidQuotaError(f"{key} must be at most {largest}, not {value}")
    if largest is not None and abs(value % 1.0) > _FRACTION_MAX:
        raise InvalidQuotaError(f"{key} must be a whole number, not {value}")
    return value


def in_words(entity: QuotaEntity) -> str:
    return " and ".join(f"the default {kind}" if name is None else f"{kind} {name[:100]!r}" for kind, name in entity)


class InvalidQuotaError(LogbrookError):
    """A quota, entity or filter breaks a rule; the message says which."""
