"""The principal of a client's certificate: its distinguished name, mapped by rules as in Kafka (KIP-371).

    RULE:pattern/replacement/[L|U]    if the pattern matches the whole name; $1 is a group; L, U: lower, upper case
    DEFAULT                           the distinguished name as it is

A distinguished name is written as by Java (RFC 2253): the most specific part first, `CN=alice,OU=sales,O=Example`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from logbrook.model.security import ANONYMOUS, USER, Principal
from logbrook.server.security.errors import InvalidSecurityError

MappingRule: TypeAlias = Callable[[str], str | None]

_SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
# A rule ends with a comma or the text; its parts are separated by slashes that are not escaped.
_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<to>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,|$)"
)
_GROUP = re.compile(r"\$(\d)")


def parse_mapping_rules(text: str) -> list[MappingRule]:
    """Raises InvalidSecurityError."""
    rules: list[MappingRule] = []
    position, text = 0, text.strip() or "DEFAULT"
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise InvalidSecurityError(
                f"security.principal_mapping_rules: {text[position:]!r} is not DEFAULT or RULE:PATTERN/REPLACEMENT/[LU]"
            )
        rules.append((lambda name: name) if match["default"] else _rule(match["pattern"], match["to"], match["case"]))
        position = match.end()
    return rules


def certificate_principal(certificate: Mapping[str, Any] | None, rules: Sequence[MappingRule]) -> Principal:
    """Return the principal of a verified certificate, as `ssl` decodes it; anonymous without one.

    Raises ValueError if no rule matches.
    """
    if not certificate:
        return ANONYMOUS
    name = distinguished_name(certificate["subject"])
    for rule in rules:
        mapped = rule(name)
        if mapped:
            return Principal(USER, mapped)
    raise ValueError(f"no rule of security.principal_mapping_rules matches {name!r}")


def distinguished_name(subject: Sequence[Sequence[tuple[str, str]]]) -> str:
    """Write a subject as RFC 2253 does, from the relative names in the order of the certificate."""
    return ",".join(
        "+".join(f"{_SHORT_NAMES.get(name, name)}={_escaped(value)}" for name, value in relative)
        for relative in reversed(subject)
    )


def _rule(pattern: str, replacement: str, case: str) -> MappingRule:
    """Raises InvalidSecurityError."""
    try:
        compiled = re.compile(pattern.replace("\\/", "/"))
    except re.error as error:
        raise InvalidSecurityError(f"security.principal_mapping_rules: {pattern!r}: {error}") from None
    expanded = _GROUP.sub(r"\\g<\1>", replacement)

    def rule(name: str) -> str | None:
        match = compiled.fullmatch(name)
        if match is None:
            return None
        mapped = match.expand(expanded)
        return mapped.lower() if case == "L" else mapped.upper() if case == "U" else mapped

    return rule


def _escaped(value: str) -> str:
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    return escaped[:-1] + "\\ " if len(escaped) > 1 and escaped.endswith(" ") else escaped
