"""Settings of security: protocols of the listeners, TLS, SASL, authorization and the audit log."""

from enum import StrEnum

from logbrook.config.network import DEFAULT_LISTENER, parse_named
from logbrook.config.setting import Settings, setting
from logbrook.model.security import Principal, SaslMechanism, SecurityProtocol


class ClientCertificates(StrEnum):
    """Policy for certificates of clients on listeners with TLS."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


class TlsVersion(StrEnum):
    """Versions of TLS."""

    TLS_1_2 = "1.2"
    TLS_1_3 = "1.3"


class SecurityConfig(Settings):
    """The settings of authentication, encryption and authorization."""

    protocol: SecurityProtocol = setting(
        SecurityProtocol.PLAINTEXT,
        "Security protocol of the listener `listen`. SSL encrypts, SASL_PLAINTEXT authenticates, SASL_SSL does both.",
        flag="security-protocol",
    )
    protocols: str = setting(
        "",
        "NAME=PROTOCOL of the further listeners (--listener); several are separated by commas, or the flag is repeated."
        " Those that are not named have the protocol of `listen`.",
        flag="listener-protocol",
    )
    certificate: str = setting("", "PEM file with the certificate of the broker and those of its issuers, for TLS.")
    key: str = setting("", "PEM file with the key of the certificate. Empty: it is in the file of the certificate.")
    key_password_file: str = setting("", "File with the password of the key, if it is encrypted.")
    client_ca: str = setting("", "PEM file with the certificates of the authorities that sign clients' certificates.")
    client_certificates: ClientCertificates = setting(
        ClientCertificates.NONE,
        "Certificates of clients: none are asked for, requested (a client without one is anonymous, or authenticates "
        "with SASL) or required.",
        kafka="ssl.client.auth",
    )
    tls_version: TlsVersion = setting(TlsVersion.TLS_1_2, "The oldest version of TLS that clients may use.")
    ciphers: str = setting("", "OpenSSL cipher list for TLS 1.2. Empty: ciphers with forward secrecy and AEAD.")
    principal_mapping_rules: str = setting(
        "DEFAULT",
        "How the distinguished name of a client's certificate becomes the name of its principal, as in Kafka: rules "
        "such as RULE:^CN=(.*?),.*$/$1/L, separated by commas; the first that matches applies.",
        kafka="ssl.principal.mapping.rules",
    )
    sasl_mechanisms: frozenset[SaslMechanism] = setting(
        frozenset({SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512}),
        "SASL mechanisms that clients may use. PLAIN sends the password itself, so it needs TLS.",
        kafka="sasl.enabled.mechanisms",
    )
    users_file: str = setting(
        "",
        "JSON file with the salted credentials of users who exist from the start, such as the first administrator. "
        "Written by logbrook security init and logbrook user create.",
    )
    reauthentication_ms: int = setting(
        0,
        "Clients must authenticate again after this time (KIP-368), else their connection is closed. 0: never.",
        kafka="connections.max.reauth.ms",
        at_least=0,
    )
    failed_authentication_delay_ms: int = setting(
        100,
        "A failed authentication is answered after this time at the earliest; later for addresses with many failures.",
        kafka="connection.failed.authentication.delay.ms",
        at_least=0,
        at_most=5_000,
    )
    handshake_ms: int = setting(
        10_000,
        "Time for the TLS handshake and the authentication of a new connection; after that it is closed.",
        at_least=100,
    )
    handshakes_max: int = setting(
        500,
        "Maximum number of TLS handshakes in progress; beyond it the oldest one is given up.",
        at_least=1,
    )
    oauth_jwks: str = setting(
        "", "File or URL of the JSON web key set that tokens are signed with, for OAUTHBEARER and bearer tokens."
    )
    oauth_issuer: str = setting("", "Required issuer (iss) of tokens. Empty: any.")
    oauth_audience: str = setting("", "Required audience (aud) of tokens; one of several, separated by commas.")
    oauth_principal_claim: str = setting("sub", "The claim of a token that is the name of its principal.")
    oauth_clock_skew_ms: int = setting(
        30_000, "Tolerated difference between the clocks of the issuer and this broker.", at_least=0
    )
    authorization: bool = setting(
        False,
        "Enforce ACLs: what no ACL allows is refused, except for super users. Off: every client may do everything.",
        flag="authorization",
    )
    super_users: str = setting(
        "", "Principals that may do everything, separated by semicolons: User:admin;User:broker.", kafka="super.users"
    )
    allow_everyone_if_no_acl: bool = setting(
        False,
        "Allow every operation on resources that no ACL names.",
        kafka="allow.everyone.if.no.acl.found",
    )
    state_bytes_max: int = setting(
        64 << 20,
        "Maximum memory of all users, ACLs and quotas, about 100,000 of them. Further ones are refused with "
        "POLICY_VIOLATION.",
        at_least=1024,
    )
    audit_file: str = setting(
        "", "File for the audit log, one JSON object per line. Empty: audit events are in the broker's log only."
    )
    audit_topic: bool = setting(False, "Append audit events to the topic __audit, too.")

    @property
    def super_principals(self) -> frozenset[Principal]:
        """Raises ValueError."""
        return frozenset(Principal.parse(text) for text in self.super_users.split(";") if text.strip())

    def protocol_of(self, listener: str) -> SecurityProtocol:
        """Return the protocol of a listener. Raises ValueError."""
        if listener == DEFAULT_LISTENER:
            return self.protocol
        named = parse_named(self.protocols, "NAME=PROTOCOL")
        return SecurityProtocol(named[listener].upper()) if listener in named else self.protocol
