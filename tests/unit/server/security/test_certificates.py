"""Principals of certificates: distinguished names as Java writes them, and Kafka's mapping rules (KIP-371)."""

import pytest

from logbrook.model.security import ANONYMOUS, Principal
from logbrook.server.security.certificates import certificate_principal, distinguished_name, parse_mapping_rules
from logbrook.server.security.errors import InvalidSecurityError

NAME = "CN=Alice,OU=ServiceUsers,O=Org,C=DE"


def mapped(rules: str, name: str = NAME) -> str | None:
    """Return what the first rule that matches makes of a distinguished name."""
    for rule in parse_mapping_rules(rules):
        if (result := rule(name)) is not None:
            return result
    return None


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("", NAME),
        ("DEFAULT", NAME),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Alice"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", "alice"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1@$1/U", "ALICE@ALICE"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/", "Alice@ServiceUsers"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/fixed/U", "FIXED"),
        # The first rule that matches applies; one that does not match the whole name does not match.
        ("RULE:^OU=(.*)$/$1/, RULE:^.*C=(..)$/$1/L,DEFAULT", "de"),
        ("RULE:CN=Alice/$1/,DEFAULT", NAME),
        (" RULE:^CN=(.*?),.*$/$1/L , DEFAULT ", "alice"),
        # Commas and escaped slashes belong to the pattern or the replacement.
        (r"RULE:^CN=([^\/]*?),OU=.*$/a\/$1,b/", "a/Alice,b"),
        # As in Java: $0 is the whole name, a reference to a group that does not exist is text, as is an escaped one.
        ("RULE:^CN=(.*?),.*$/$0/", NAME),
        ("RULE:^CN=(.*?),.*$/$1$2/", "Alice$2"),
        ("RULE:^CN=(.*?),.*$/$10/", "Alice0"),
        (r"RULE:^CN=(.*?),.*$/\$1\x/", "$1x"),
        ("RULE:^CN=(.*?)(X)?,.*$/$1$2/", "Alice"),
    ],
)
def test_rules_map_names_as_in_kafka(rules: str, expected: str) -> None:
    assert mapped(rules) == expected


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "RULE:CN=(.*)",
        "RULE:^CN=(.*?),.*/$1",
        "rule:^CN=(.*?),.*$/$1/L",
        "RULE:^CN=(.*?),.*$/$1/L/U",
        "RULE:^CN=(.*?),.*$/$1/X",
        "RULE:^CN=(.*?),.*$/LU",
        "RULE:^CN=(.*?,.*$/$1/",
        "RULE:^CN=(.*?),.*$/$1/L DEFAULT",
    ],
)
def test_invalid_rules_are_refused_at_the_start(rules: str) -> None:
    with pytest.raises(InvalidSecurityError, match="principal_mapping_rules"):
        parse_mapping_rules(rules)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("a=b", r"a\=b"),
        ("a#b", r"a\#b"),
        ("#x", r"\#x"),
        ("  x  ", r"\ \ x\ \ "),
        (" ", r"\ "),
        ("a b", "a b"),
        ('a,b+c"\\<>;', r"a\,b\+c\"\\\<\>\;"),
        ("a\0b", r"a\00b"),
        ("é/", "é/"),
    ],
)
def test_values_are_escaped_as_by_java(value: str, written: str) -> None:
    """The expected texts are those of Java's X500Principal.getName()."""
    assert distinguished_name(((("commonName", value),),)) == f"CN={written}"


def test_a_name_is_written_with_the_most_specific_part_first() -> None:
    subject = (
        (("countryName", "DE"),),
        (("organizationName", "Org"),),
        (("organizationalUnitName", "a"), ("userId", "b")),
        (("commonName", "Alice"),),
    )
    assert distinguished_name(subject) == "CN=Alice,OU=a+UID=b,O=Org,C=DE"


def test_a_value_cannot_imitate_another_part_of_the_name() -> None:
    certificate = {"subject": ((("organizationalUnitName", "guests"),), (("commonName", "x,OU=admins"),))}
    rules = parse_mapping_rules(r"RULE:^CN=([^,\\]*),OU=admins.*$/admin/,RULE:^.*$/guest/")
    assert certificate_principal(certificate, rules) == Principal("User", "guest")


def test_a_connection_without_a_certificate_is_anonymous_and_an_unmapped_name_is_refused() -> None:
    rules = parse_mapping_rules("RULE:^CN=(.*),O=Org$/$1/")
    assert certificate_principal(None, rules) == certificate_principal({}, rules) == ANONYMOUS
    for subject in ((), ((("commonName", "x"),),), ((("organizationName", "Org"),), (("commonName", ""),))):
        with pytest.raises(ValueError, match="no rule"):
            certificate_principal({"subject": subject}, rules)
