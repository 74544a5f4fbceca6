"""The options of TLS: whom a client trusts, how it identifies itself, and what it checks."""

from dataclasses import dataclass, field

from logbrook.client.errors import SecurityOptionError
from logbrook.client.security_options import SecurityOptionReader

_TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
_TO_PEM = (
    "convert it to PEM (`keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12`, then "
    "`openssl pkcs12 -in FILE.p12 -out FILE.pem -nodes`)"
)
_STORES = (".jks", ".p12", ".pfx", ".keystore", ".truststore")


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Trust and identity of a client in TLS. Each of the three is a file or PEM text; without a CA: the system's."""

    ca_file: str = ""
    ca_pem: str = field(default="", repr=False)
    certificate_file: str = ""
    certificate_pem: str = field(default="", repr=False)
    key_file: str = ""
    key_pem: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    crl_file: str = ""
    ciphers: str = ""
    version_min: str = "TLSv1.2"
    version_max: str = "TLSv1.3"
    verifies_certificate: bool = True
    verifies_host: bool = True


def read_tls(reader: SecurityOptionReader) -> TlsOptions:
    """Raises SecurityOptionError."""
    for store in ("ssl.truststore", "ssl.keystore"):
        _check_store(reader, store)
    reader.only_one_of("ssl.ca.location", "ssl.ca.pem", "ssl.truststore.location", "ssl.truststore.certificates")
    certificate_names = ("ssl.certificate.location", "ssl.certificate.pem")
    reader.only_one_of(*certificate_names, "ssl.keystore.location", "ssl.keystore.certificate.chain")
    reader.only_one_of("ssl.key.location", "ssl.key.pem", "ssl.keystore.location", "ssl.keystore.key")
    # Java's PEM key store is one file with the chain and the key.
    store = reader.text("ssl.keystore.location")
    options = TlsOptions(
        ca_file=reader.text("ssl.ca.location", "ssl.truststore.location"),
        ca_pem=reader.text("ssl.ca.pem", "ssl.truststore.certificates"),
        certificate_file=store or reader.text("ssl.certificate.location"),
        certificate_pem=reader.text("ssl.certificate.pem", "ssl.keystore.certificate.chain"),
        key_file=store or reader.text("ssl.key.location"),
        key_pem=reader.text("ssl.key.pem", "ssl.keystore.key"),
        key_password=reader.text("ssl.key.password"),
        crl_file=reader.text("ssl.crl.location"),
        ciphers=reader.text("ssl.cipher.suites").replace(",", ":"),
        version_min=(versions := _read_versions(reader))[0],
        version_max=versions[-1],
        verifies_certificate=(verifies := reader.boolean("enable.ssl.certificate.verification", True)),
        verifies_host=_read_host_check(reader) and verifies,
    )
    has_certificate = bool(options.certificate_file or options.certificate_pem)
    if has_certificate != bool(options.key_file or options.key_pem):
        given, missing = ("certificate", "key") if has_certificate else ("key", "certificate")
        raise SecurityOptionError(
            f"ssl.{missing}.location", f"it is required with the client's {given}; give the PEM file of the {missing}"
        )
    return options


def _check_store(reader: SecurityOptionReader, store: str) -> None:
    """Refuse Java's key stores: only PEM can be read without a Java library."""
    kind, path = reader.text(f"{store}.type").upper(), reader.text(f"{store}.location")
    if kind not in ("", "PEM"):
        raise SecurityOptionError(f"{store}.type", f"{kind} is not supported, only PEM; {_TO_PEM}")
    if path.lower().endswith(_STORES):
        raise SecurityOptionError(f"{store}.location", f"{path} is not a PEM file; {_TO_PEM}")


def _read_versions(reader: SecurityOptionReader) -> list[str]:
    """Return the allowed versions of TLS, oldest first."""
    newest = reader.text("ssl.protocol")
    if newest not in ("", "TLS", *_TLS_VERSIONS):
        raise SecurityOptionError("ssl.protocol", f"it must be {' or '.join(_TLS_VERSIONS)}, not {newest!r}")
    enabled = [version.strip() for version in reader.text("ssl.enabled.protocols").split(",") if version.strip()]
    if unknown := next((version for version in enabled if version not in _TLS_VERSIONS), None):
        raise SecurityOptionError(
            "ssl.enabled.protocols", f"{unknown!r} is not supported; allowed are {', '.join(_TLS_VERSIONS)}"
        )
    # As in Java's clients `ssl.enabled.protocols` decides, and `ssl.protocol` is a default.
    if not enabled and newest in _TLS_VERSIONS:
        enabled = [version for version in _TLS_VERSIONS if version <= newest]
    return sorted(enabled or _TLS_VERSIONS)


def _read_host_check(reader: SecurityOptionReader) -> bool:
    name = "ssl.endpoint.identification.algorithm"
    algorithm = reader.text(name).lower()
    if algorithm not in ("", "https", "none"):
        raise SecurityOptionError(name, f"it must be https, or empty to skip the check of names, not {algorithm!r}")
    # Given as an empty text, it switches the check off; not given, the check is on.
    return algorithm == "https" or not reader.is_given(name)
