"""Security options of clients: both dialects mean the same, mistakes are refused by name, secrets stay hidden."""

import pickle

import pytest

from logbrook.client.errors import SecurityOptionError
from logbrook.client.security import ClientSecurity, parse_client_security
from logbrook.client.security_options import SECRET_OPTIONS, is_security_option, shown_value
from logbrook.model.security import SaslMechanism, SecurityProtocol

SECRET = "s3cr3t-VALUE"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
ENDPOINT = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token"}


def sasl(**options: str) -> dict[str, str]:
    return {"security.protocol": "SASL_SSL"} | {name.replace("_", "."): value for name, value in options.items()}


def test_nothing_given_is_plain_text() -> None:
    assert parse_client_security({}) == ClientSecurity()


def test_java_and_librdkafka_options_mean_the_same() -> None:
    java = parse_client_security(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{SCRAM_MODULE} required username="alice" password="{SECRET}";',
            "ssl.truststore.location": "/ca.pem",
            "ssl.truststore.type": "PEM",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    librdkafka = parse_client_security(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": SECRET,
            "ssl.ca.location": "/ca.pem",
            "ssl.endpoint.identification.algorithm": "none",
        }
    )
    assert java == librdkafka
    assert java.protocol is SecurityProtocol.SASL_SSL
    assert java.sasl is not None
    assert java.sasl.mechanism is SaslMechanism.SCRAM_SHA_512
    assert java.sasl.password == SECRET
    assert not java.tls.verifies_host
    assert java.tls.verifies_certificate


def test_certificates_may_be_files_or_text() -> None:
    files = parse_client_security(
        {"security.protocol": "SSL", "ssl.keystore.location": "/me.pem", "ssl.key.password": SECRET}
    )
    assert (files.tls.certificate_file, files.tls.key_file) == ("/me.pem", "/me.pem")
    text = parse_client_security(
        {
            "security.protocol": "SSL",
            "ssl.truststore.certificates": "CA",
            "ssl.keystore.certificate.chain": "CHAIN",
            "ssl.keystore.key": "KEY",
        }
    )
    assert (text.tls.ca_pem, text.tls.certificate_pem, text.tls.key_pem) == ("CA", "CHAIN", "KEY")


def test_host_names_are_verified_unless_switched_off() -> None:
    assert parse_client_security({"security.protocol": "SSL"}).tls.verifies_host
    options = {"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}
    tls = parse_client_security(options).tls
    assert not tls.verifies_host
    assert not tls.verifies_certificate


def test_versions_of_tls_can_be_limited() -> None:
    only = parse_client_security({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.3"}).tls
    assert (only.version_min, only.version_max) == ("TLSv1.3", "TLSv1.3")
    older = parse_client_security({"security.protocol": "SSL", "ssl.protocol": "TLSv1.2"}).tls
    assert (older.version_min, older.version_max) == ("TLSv1.2", "TLSv1.2")


def test_oauth_takes_an_endpoint_a_file_or_a_token() -> None:
    endpoint = parse_client_security(
        sasl() | ENDPOINT | {"sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": SECRET}
    )
    jaas = parse_client_security(
        sasl() | ENDPOINT | {"sasl.jaas.config": f"{OAUTH_MODULE} required clientId='me' clientSecret='{SECRET}' ;"}
    )
    assert endpoint == jaas
    file = parse_client_security(
        sasl() | {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "file:///run/token"}
    )
    assert file.sasl is not None
    assert file.sasl.oauth is not None
    assert file.sasl.oauth.token_file == "/run/token"


def test_quotes_and_escapes_of_jaas_are_read() -> None:
    text = f'{SCRAM_MODULE} required\n  username="al\\"ice"\n  password="a;b\\\\c=d e";'
    options = parse_client_security(sasl(sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=text)).sasl
    assert options is not None
    assert (options.username, options.password) == ('al"ice', "a;b\\c=d e")


@pytest.mark.parametrize(
    ("options", "named", "advice"),
    [
        ({"security.protocol": "TLS"}, "security.protocol", "is not one of PLAINTEXT, SSL"),
        ({"sasl.username": "a"}, "sasl.username", "needs security.protocol=SASL_SSL"),
        ({"ssl.ca.location": "/ca.pem"}, "ssl.ca.location", "needs security.protocol=SSL"),
        (sasl(), "sasl.mechanism", "it is required"),
        (sasl(sasl_mechanism="GSSAPI"), "sasl.mechanism", "not supported"),
        (sasl(sasl_mechanism="PLAIN"), "sasl.username", "required for PLAIN"),
        (sasl(sasl_mechanism="PLAIN", sasl_username="a"), "sasl.password", "required for PLAIN"),
        (sasl(sasl_mechanism="PLAIN", sasl_mechanisms="OAUTHBEARER"), "sasl.mechanisms", "same meaning"),
        (sasl(sasl_mechanism="PLAIN", sasl_jaas_config=f"{SCRAM_MODULE} required;"), "sasl.jaas.config", "is not for"),
        (sasl(sasl_mechanism="PLAIN", sasl_jaas_config="com.Foo required;"), "sasl.jaas.config", "com.Foo is not"),
        (
            sasl(sasl_mechanism="PLAIN", sasl_jaas_config=f'PlainLoginModule required password="{SECRET}"'),
            "sasl.jaas.config",
            "semicolon",
        ),
        (
            sasl(sasl_mechanism="PLAIN", sasl_jaas_config=f'PlainLoginModule required password="{SECRET}";'),
            "sasl.jaas.config",
            "has no username",
        ),
        (
            sasl(sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=f'{SCRAM_MODULE} required tokenauth="true";'),
            "sasl.jaas.config",
            "delegation tokens",
        ),
        (sasl(sasl_mechanism="OAUTHBEARER"), "sasl.oauthbearer.token.endpoint.url", "needs it"),
        (sasl() | ENDPOINT, "sasl.oauthbearer.client.id", "required"),
        (sasl(sasl_kerberos_service_name="kafka"), "sasl.kerberos.service.name", "Kerberos"),
        (sasl() | {"sasl.usrname": SECRET}, "sasl.usrname", "did you mean sasl.username"),
        (sasl() | {"sasl.login.class": "com.Foo"}, "sasl.login.class", "Java class"),
        (sasl(ssl_truststore_location="/ca.jks"), "ssl.truststore.location", "convert it to PEM"),
        (sasl(ssl_keystore_type="JKS"), "ssl.keystore.type", "only PEM"),
        (sasl(ssl_truststore_password=SECRET), "ssl.truststore.password", "only PEM is supported"),
        (sasl(ssl_certificate_location="/c.pem"), "ssl.key.location", "required with the client's certificate"),
        (sasl(ssl_ca_location="/a", ssl_truststore_location="/b"), "ssl.truststore.location", "together"),
        (sasl(ssl_enabled_protocols="TLSv1.1"), "ssl.enabled.protocols", "not supported"),
        (
            sasl() | {"ssl.endpoint.identification.algorithm": "ldaps"},
            "ssl.endpoint.identification.algorithm",
            "must be https",
        ),
    ],
)
def test_mistakes_are_refused_by_name(options: dict[str, str], named: str, advice: str) -> None:
    complete = {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": SECRET}
    needs_sasl = not any(name.startswith("sasl") for name in options) and len(options) > 1
    with pytest.raises(SecurityOptionError, match=advice) as caught:
        parse_client_security(options | (complete if needs_sasl else {}))
    assert caught.value.option == named
    assert SECRET not in str(caught.value)


def test_options_without_effect_on_security_are_ignored() -> None:
    options = sasl(sasl_mechanism="PLAIN", sasl_username="a", sasl_password="b") | {
        "sasl.login.refresh.window.factor": "0.5",
        "ssl.trustmanager.algorithm": "PKIX",
    }
    assert parse_client_security(options).sasl is not None


def test_secrets_are_in_no_text_of_the_values() -> None:
    options = dict.fromkeys(SECRET_OPTIONS - {"sasl.jaas.config", "sasl.oauthbearer.token"}, SECRET)
    options = {name: value for name, value in options.items() if "store" not in name and not name.endswith("pem")}
    security = parse_client_security(
        options
        | sasl(sasl_username="a", ssl_certificate_pem="x", ssl_key_pem=SECRET)
        | ENDPOINT
        | {"sasl.oauthbearer.client.id": "me"}
    )
    assert SECRET not in repr(security)
    assert pickle.loads(pickle.dumps(security)) == security
    for name in SECRET_OPTIONS:
        assert is_security_option(name)
        assert shown_value(f"kafka.{name}", SECRET) == "[hidden]"
    assert shown_value("sasl.username", "alice") == "alice"
