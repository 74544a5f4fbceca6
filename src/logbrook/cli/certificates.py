"""Certificates for brokers and clients, signed by a private authority that `logbrook security init` creates.

Keys are on the curve P-256, which every TLS library knows. A certificate with host names is for a broker: it also
serves as the broker's client certificate towards others. One without is for a client. Needs the package `cryptography`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from logbrook.model import LogbrookError
from logbrook.model.version import install_command

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

# Accepted by clients that limit the life of certificates.
DEFAULT_DAYS = 397
AUTHORITY_DAYS = 3650
# Certificates are valid from a little before now, for machines whose clocks are behind.
_CLOCK_SKEW = timedelta(hours=1)


class CertificateError(LogbrookError):
    """A certificate cannot be made, or that of the authority cannot be read."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, as PEM. The key is not encrypted."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        """Leave out the key."""
        return f"KeyPair({len(self.certificate)} bytes of certificate)"


def create_authority(name: str, days: int = AUTHORITY_DAYS) -> KeyPair:
    """Make a certificate authority. Raises CertificateError."""
    _check_installed()
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(name, days, key)
        .issuer_name(_name(name))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )
    return _signed(builder, key, key)


def create_certificate(authority: KeyPair, name: str, hosts: Sequence[str] = (), days: int = DEFAULT_DAYS) -> KeyPair:
    """Make a certificate for CN=`name`, also for a server if it has `hosts`: names and addresses.

    Raises CertificateError.
    """
    _check_installed()
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.x509.oid import ExtendedKeyUsageOID  # noqa: PLC0415

    try:
        issuer = x509.load_pem_x509_certificate(authority.certificate)
        issuer_key = serialization.load_pem_private_key(authority.key, None)
    except (TypeError, ValueError):
        raise CertificateError(
            "the certificate or the key of the authority is not a PEM file that can be read"
        ) from None
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise CertificateError("the key of the authority is not one that `logbrook security init` makes")
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
    builder = (
        _builder(name, days, key)
        .issuer_name(issuer.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if hosts:
        names = [_general_name(host) for host in dict.fromkeys(hosts)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _signed(builder, key, issuer_key)


def _check_installed() -> None:
    try:
        import cryptography  # noqa: F401, PLC0415
    except ModuleNotFoundError:
        raise CertificateError(
            f"making certificates needs the package cryptography: {install_command('security')}"
        ) from None


def _builder(name: str, days: int, key: "EllipticCurvePrivateKey") -> "x509.CertificateBuilder":
    from cryptography import x509  # noqa: PLC0415

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _signed(
    builder: "x509.CertificateBuilder", key: "EllipticCurvePrivateKey", issuer_key: "EllipticCurvePrivateKey"
) -> KeyPair:
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415

    pem = serialization.Encoding.PEM
    # Java reads keys in PKCS #8 only.
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return KeyPair(builder.sign(issuer_key, hashes.SHA256()).public_bytes(pem), private)


def _name(text: str) -> "x509.Name":
    from cryptography import x509  # noqa: PLC0415
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
    except ValueError as error:
        raise CertificateError(f"{text!r} cannot be the name in a certificate: {error}") from None


def _general_name(host: str) -> "x509.GeneralName":
    from cryptography import x509  # noqa: PLC0415

    try:
        return x509.IPAddress(ip_address(host.strip("[]")))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise CertificateError(f"{host!r} cannot be a host in a certificate: {error}") from None


def _key_usage(*, signs_certificates: bool) -> "x509.KeyUsage":
    from cryptography import x509  # noqa: PLC0415

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
