"""Certificates of tests: a CA per test process, and certificates of brokers and clients, good and bad, as PEM files.

Elliptic keys are made in a millisecond, so nothing is checked in and nothing expires. `Certificates(folder)` writes
into `folder` on demand:

    certificates = Certificates(tmp_path)
    broker = certificates.issue("localhost")          # files broker.certificate, broker.key
    certificates.ca                                   # the file that a client trusts
"""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class IssuedCertificate:
    """The PEM files of a certificate, with its chain, and of its key."""

    certificate: Path
    key: Path


class Certificates:
    """A certificate authority whose files are in `folder`. Two of them do not trust each other."""

    def __init__(self, folder: Path, name: str = "test-ca") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._name = _name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._serial = 0
        authority = (
            _builder(self._name, self._name, self._key, -_DAY, 3650 * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(is_ca=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(authority.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        subject: str = "localhost",
        *,
        hosts: tuple[str, ...] = ("localhost", "127.0.0.1"),
        is_expired: bool = False,
        key_password: str | None = None,
    ) -> IssuedCertificate:
        """Issue a certificate for servers and clients alike.

        `subject` is the common name, or a distinguished name such as `CN=alice,OU=tests,O=Logbrook`. `hosts` are the
        DNS names and addresses that the certificate is valid for.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        start, end = (-3 * _DAY, -2 * _DAY) if is_expired else (-_DAY, 365 * _DAY)
        issued = (
            _builder(_name(subject), self._name, key, start, end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(is_ca=False), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
        )
        if hosts:
            issued = issued.add_extension(
                x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
            )
        self._serial += 1
        files = IssuedCertificate(self._folder / f"{self._serial}.crt", self._folder / f"{self._serial}.key")
        signed = issued.sign(self._key, hashes.SHA256())
        files.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        files.key.write_bytes(_private_pem(key, key_password))
        return files


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, start: timedelta, end: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + start)
        .not_valid_after(now + end)
    )


def _name(subject: str) -> x509.Name:
    if "=" in subject:
        return x509.Name.from_rfc4514_string(subject)
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey, password: str | None) -> bytes:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
