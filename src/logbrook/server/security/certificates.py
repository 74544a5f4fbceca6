"""The principal of a client's certificate: its distinguished name, mapped by rules as in Kafka (KIP-371).

    RULE:pattern/replacement/[L|U]    if the pattern matches the whole name; $1 is a group; L, U: lower, upper case
    DEFAULT                           the distinguished name as it is

A distinguished name is written as by Java (RFC 2253): the most specific part first, `CN=alice,OU=sales,O=Example`.
Attributes that RFC 2253 does not name have OpenSSL's name (`serialNumber=1`); Java writes a number and bytes.
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
# In a replacement: a reference to a group, or an escaped character.
_REFERENCE = re.compile(r"\$(?P<group>\d+)|\\(?P<escaped>.)", re.DOTALL)
# Characters that are escaped everywhere, and spaces at both ends.
_ESCAPED = re.compile(r'[,=+<>#;"\\]|^ +| +$')


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

    def rule(name: str) -> str | None:
        match = compiled.fullmatch(name)
        if match is None:
            return None
        mapped = _REFERENCE.sub(lambda reference: _expanded(reference, match), replacement)
        return mapped.lower() if case == "L" else mapped.upper() if case == "U" else mapped

    return rule


def _expanded(reference: re.Match[str], match: re.Match[str]) -> str:
    """Return what a reference in a replacement stands for, as in Kafka: that of a group that does not exist is text."""
    if reference["escaped"] is not None:
        return reference["escaped"]
    digits = reference["group"]
    # As many digits as name a group; the others are text.
    for end in range(len(digits), 0, -1):
        if int(digits[:end]) <= match.re.groups:
            return (match[int(digits[:end])] or "") + digits[end:]
    return reference[0]


def _escaped(value: str) -> str:
    escaped = _ESCAPED.sub(lambda match: "".join(f"\\{character}" for character in match[0]), value)
    return escaped.replace("\0", "\\00")
