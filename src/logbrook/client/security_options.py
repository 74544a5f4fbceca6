"""The security options of Kafka's Java clients and of librdkafka: which are secret, ignored or refused, and why.

`parse_client_security` reads all others. An option that would weaken or change the security of a connection is never
ignored: it has its effect, or it is refused with advice.
"""

from collections.abc import Mapping
from difflib import get_close_matches

from logbrook.client.errors import SecurityOptionError

# Options that have an effect.
OPTIONS = frozenset(
    {
        "enable.ssl.certificate.verification",
        "https.ca.location",
        "sasl.jaas.config",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.token.file",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.type",
    }
)
# Options whose values must not appear in any output.
SECRET_OPTIONS = frozenset(
    {
        "sasl.jaas.config",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.token",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    }
)
HIDDEN = "[hidden]"

_PREFIXES = ("security.", "sasl.", "ssl.", "https.")
_OTHERS = frozenset({"enable.ssl.certificate.verification"})

# Tuning of logins in the background. This client gets a token when it needs it.
_IGNORED = frozenset(
    {
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
    }
)
_OAUTH_CLASSES = (
    "org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever",
    "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
    "org.apache.kafka.common.security.oauthbearer.FileJwtRetriever",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
# Options that other clients need, with the only values that this client can do without.
_ALLOWED_VALUES = {
    "sasl.login.callback.handler.class": _OAUTH_CLASSES,
    "sasl.oauthbearer.grant.type": ("client_credentials",),
    "sasl.oauthbearer.jwt.retriever.class": _OAUTH_CLASSES,
    "sasl.oauthbearer.method": ("oidc",),
    "ssl.keymanager.algorithm": ("SunX509", "PKIX"),
    "ssl.trustmanager.algorithm": ("PKIX", "SunX509"),
}
_JAVA = "it names a Java class, which this client cannot load; remove it"
_BROKER = "it is a setting of brokers; remove it"
_OPENSSL = "this client does not change it in OpenSSL; remove it"
_STORE_PASSWORD = (
    "it is that of a JKS or PKCS12 store, and only PEM is supported: give PEM files (`openssl pkcs12 -in FILE -out "
    "FILE.pem -nodes` converts), and ssl.key.password if the key is encrypted"
)
_REFUSED = {
    "sasl.client.callback.handler.class": _JAVA,
    "sasl.login.class": _JAVA,
    "sasl.oauthbearer.config": "unsecured tokens are not supported; use sasl.oauthbearer.token.endpoint.url, or "
    "sasl.oauthbearer.token.file",
    "sasl.oauthbearer.expected.audience": _BROKER,
    "sasl.oauthbearer.expected.issuer": _BROKER,
    "sasl.oauthbearer.jwks.endpoint.url": _BROKER,
    "security.providers": _JAVA,
    "ssl.client.auth": _BROKER,
    "ssl.curves.list": _OPENSSL,
    "ssl.engine.factory.class": _JAVA,
    "ssl.engine.id": _OPENSSL,
    "ssl.engine.location": _OPENSSL,
    "ssl.keystore.password": _STORE_PASSWORD,
    "ssl.principal.mapping.rules": _BROKER,
    "ssl.provider": _JAVA,
    "ssl.providers": _OPENSSL,
    "ssl.secure.random.implementation": _JAVA,
    "ssl.sigalgs.list": _OPENSSL,
    "ssl.truststore.password": _STORE_PASSWORD,
}
_BOOLEANS = {"true": True, "false": False}
_KERBEROS = "sasl.kerberos."
_KERBEROS_REFUSED = "Kerberos (GSSAPI) is not supported; use SCRAM-SHA-256, SCRAM-SHA-512, PLAIN or OAUTHBEARER"


def is_security_option(name: str) -> bool:
    """Return True if `name` is, or looks like, an option of `parse_client_security`."""
    return name.startswith(_PREFIXES) or name in _OTHERS


def shown_value(name: str, value: str) -> str:
    """Return the value for output: that of a secret option is replaced."""
    return HIDDEN if name.lower().removeprefix("kafka.") in SECRET_OPTIONS else value


class SecurityOptionReader:
    """Security options by name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raises SecurityOptionError for names that are unknown and for options that are not supported."""
        unused = _check_unused(options)
        for name in options:
            if name not in OPTIONS and name not in unused:
                nearest = get_close_matches(name, OPTIONS, 1)
                hint = f"did you mean {nearest[0]}?" if nearest else "remove it"
                raise SecurityOptionError(name, f"there is no such option; {hint}")
        self._options = {name: value for name, value in options.items() if name not in unused}

    def text(self, *names: str) -> str:
        """Return the value of an option under any of its names; empty if it is not given."""
        assert OPTIONS.issuperset(names), names
        given = {name: self._options[name] for name in names if self._options.get(name)}
        if len(set(given.values())) > 1:
            first, second, *_ = given
            raise SecurityOptionError(second, f"it has the same meaning as {first}, with another value; remove one")
        return next(iter(given.values()), "")

    def boolean(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text.lower() not in ("", *_BOOLEANS):
            raise SecurityOptionError(name, f"it must be true or false, not {text!r}")
        return _BOOLEANS[text.lower()] if text else default

    def is_given(self, name: str) -> bool:
        """Return True for an option that is given, if only as an empty text."""
        return name in self._options

    def first_given(self, *prefixes: str) -> str:
        return next((name for name, value in self._options.items() if name.startswith(prefixes) and value), "")

    def only_one_of(self, *names: str) -> None:
        given = [name for name in names if self._options.get(name)]
        if len(given) > 1:
            raise SecurityOptionError(given[1], f"it cannot be given together with {given[0]}")


def _check_unused(options: Mapping[str, str]) -> set[str]:
    """Return the names of options that have no effect. Raises SecurityOptionError for one that must not be ignored."""
    unused = set()
    for name, value in options.items():
        if name in _REFUSED:
            raise SecurityOptionError(name, _REFUSED[name])
        if name.startswith(_KERBEROS):
            raise SecurityOptionError(name, _KERBEROS_REFUSED)
        if name in _ALLOWED_VALUES and value not in _ALLOWED_VALUES[name]:
            raise SecurityOptionError(name, f"{value!r} is not supported; remove it, or set {_ALLOWED_VALUES[name][0]}")
        if name in _IGNORED or name in _ALLOWED_VALUES:
            unused.add(name)
    return unused
