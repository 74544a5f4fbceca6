"""The options of SASL: the mechanism and its credentials, under the names of Java's clients and of librdkafka."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from logbrook.client.errors import SecurityOptionError
from logbrook.client.jaas import parse_jaas
from logbrook.client.security_options import SecurityOptionReader
from logbrook.model.security import SaslMechanism, SecurityProtocol

_MODULES = {
    "PlainLoginModule": (SaslMechanism.PLAIN,),
    "ScramLoginModule": (SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512),
    "OAuthBearerLoginModule": (SaslMechanism.OAUTHBEARER,),
}


@dataclass(frozen=True, slots=True)
class OauthOptions:
    """The token itself, a file that has it, or the endpoint that issues it for a client's id and secret."""

    token: str = field(default="", repr=False)
    token_file: str = ""
    endpoint_url: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    ca_file: str = ""
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SaslOptions:
    """The mechanism, and the credentials that it needs."""

    mechanism: SaslMechanism
    username: str = ""
    password: str = field(default="", repr=False)
    oauth: OauthOptions | None = None

    @property
    def shown_user(self) -> str:
        """The user for messages."""
        return self.username or (self.oauth.client_id if self.oauth else "") or "with a token"


def read_sasl(reader: SecurityOptionReader, protocol: SecurityProtocol) -> SaslOptions | None:
    """Return None unless `protocol` uses SASL. Raises SecurityOptionError."""
    name = reader.text("sasl.mechanism", "sasl.mechanisms").upper()
    username, password = reader.text("sasl.username"), reader.text("sasl.password")
    jaas = reader.text("sasl.jaas.config")
    oauth = _read_oauth(reader)
    if not protocol.uses_sasl:
        return None
    mechanism = _read_mechanism(name)
    reader.only_one_of("sasl.jaas.config", "sasl.username")
    if jaas:
        module, values = parse_jaas(jaas)
        _check_module(module, mechanism)
        if mechanism is SaslMechanism.OAUTHBEARER:
            return SaslOptions(mechanism, oauth=_with_jaas(oauth, values))
        username, password = values.get("username", ""), values.get("password", "")
    if mechanism is SaslMechanism.OAUTHBEARER:
        return SaslOptions(mechanism, oauth=_checked(oauth))
    if not username or not password:
        missing = "sasl.password" if username else "sasl.username"
        source = f"sasl.jaas.config has no {missing.removeprefix('sasl.')}" if jaas else "it is required"
        raise SecurityOptionError("sasl.jaas.config" if jaas else missing, f"{source} for {mechanism}")
    if other := reader.first_given("sasl.oauthbearer.", "https."):
        raise SecurityOptionError(other, f"it is for sasl.mechanism=OAUTHBEARER, which is {mechanism}")
    return SaslOptions(mechanism, username, password)


def _read_mechanism(name: str) -> SaslMechanism:
    if not name:
        raise SecurityOptionError("sasl.mechanism", f"it is required; one of {', '.join(SaslMechanism)}")
    try:
        return SaslMechanism(name)
    except ValueError:
        raise SecurityOptionError(
            "sasl.mechanism", f"{name!r} is not supported; it must be one of {', '.join(SaslMechanism)}"
        ) from None


def _check_module(module: str, mechanism: SaslMechanism) -> None:
    mechanisms = _MODULES.get(module.rpartition(".")[2])
    if mechanisms is None:
        raise SecurityOptionError("sasl.jaas.config", f"{module} is not supported; use {', '.join(_MODULES)}")
    if mechanism not in mechanisms:
        raise SecurityOptionError("sasl.jaas.config", f"{module} is not for sasl.mechanism={mechanism}")


def _read_oauth(reader: SecurityOptionReader) -> OauthOptions:
    extensions = reader.text("sasl.oauthbearer.extensions")
    url = reader.text("sasl.oauthbearer.token.endpoint.url")
    token_file = reader.text("sasl.oauthbearer.token.file")
    reader.only_one_of("sasl.oauthbearer.token", "sasl.oauthbearer.token.file", "sasl.oauthbearer.token.endpoint.url")
    if url.startswith("file:"):
        # Java's clients name a file by such a URL.
        url, token_file = "", "/" + url.removeprefix("file:").lstrip("/")
    elif url and not url.startswith(("https://", "http://")):
        raise SecurityOptionError(
            "sasl.oauthbearer.token.endpoint.url", "it must begin with https://, http:// or file:"
        )
    return OauthOptions(
        token=reader.text("sasl.oauthbearer.token"),
        token_file=token_file,
        endpoint_url=url,
        client_id=reader.text("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id"),
        client_secret=reader.text(
            "sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret"
        ),
        scope=reader.text("sasl.oauthbearer.scope"),
        ca_file=reader.text("https.ca.location"),
        extensions=tuple(_extension(pair) for pair in extensions.split(",") if pair.strip()),
    )


def _extension(pair: str) -> tuple[str, str]:
    key, equals, value = pair.strip().partition("=")
    if not (key.isalpha() and key.isascii() and equals and value.isprintable()) or key == "auth":
        raise SecurityOptionError("sasl.oauthbearer.extensions", "it must be KEY=VALUE,... with letters as keys")
    return key, value


def _with_jaas(oauth: OauthOptions, values: Mapping[str, str]) -> OauthOptions:
    """Add the client id, secret and scope, which Java's clients take from the JAAS text as well."""
    return _checked(
        OauthOptions(
            token=oauth.token,
            token_file=oauth.token_file,
            endpoint_url=oauth.endpoint_url,
            client_id=oauth.client_id or values.get("clientId", ""),
            client_secret=oauth.client_secret or values.get("clientSecret", ""),
            scope=oauth.scope or values.get("scope", ""),
            ca_file=oauth.ca_file,
            extensions=oauth.extensions
            or tuple((key.removeprefix("extension_"), value) for key, value in values.items() if "extension_" in key),
        )
    )


def _checked(oauth: OauthOptions) -> OauthOptions:
    if not (oauth.token or oauth.token_file or oauth.endpoint_url):
        raise SecurityOptionError(
            "sasl.oauthbearer.token.endpoint.url",
            "OAUTHBEARER needs it, with a client's id and secret, or sasl.oauthbearer.token.file",
        )
    if oauth.endpoint_url and not (oauth.client_id and oauth.client_secret):
        missing = "sasl.oauthbearer.client.secret" if oauth.client_id else "sasl.oauthbearer.client.id"
        raise SecurityOptionError(missing, "it is required with sasl.oauthbearer.token.endpoint.url")
    return oauth
