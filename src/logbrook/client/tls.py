"""TLS of clients by Python's `ssl`: contexts from `TlsOptions`, and sentences for the errors of handshakes.

A context is made once per set of options and kept until a file that it was made from changes, so that new connections
use renewed certificates. Keys that are given as text are loaded from a file in memory and never written to a disk.
"""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from logbrook.client.errors import (
    BrokerCertificateError,
    ClientCertificateError,
    SecurityOptionError,
    TlsHandshakeClosedError,
    WrongSecurityProtocolError,
)
from logbrook.client.tls_options import TlsOptions

SSLError = ssl.SSLError
SSLWantReadError = ssl.SSLWantReadError

_CONTEXTS_MAX = 16
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_PEM_MARK = b"-----BEGIN "

# Codes of OpenSSL's certificate verification (x509_vfy.h).
_NOT_YET_VALID = 9
_EXPIRED = 10
_REVOKED = 23
_UNTRUSTED = (18, 19, 20, 21)
_OTHER_HOST = (62, 64)
# Alerts by which a server refuses a client's certificate.
_CERTIFICATE_ALERTS = (
    "TLSV13_ALERT_CERTIFICATE_REQUIRED",
    "TLSV1_ALERT_UNKNOWN_CA",
    "TLSV1_ALERT_ACCESS_DENIED",
    "SSLV3_ALERT_BAD_CERTIFICATE",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED",
    "SSLV3_ALERT_CERTIFICATE_REVOKED",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
)
_NO_TLS = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "UNEXPECTED_MESSAGE",
    "PACKET_LENGTH_TOO_LONG",
    "RECORD_LAYER_FAILURE",
)
_NO_COMMON_VERSION = (
    "TLSV1_ALERT_PROTOCOL_VERSION",
    "UNSUPPORTED_PROTOCOL",
    "NO_PROTOCOLS_AVAILABLE",
    "SSLV3_ALERT_HANDSHAKE_FAILURE",
)


def client_context(options: TlsOptions) -> ssl.SSLContext:
    """Return the context for connections with these options. Raises SecurityOptionError."""
    paths = (options.ca_file, options.certificate_file, options.key_file, options.crl_file)
    return _context(options, tuple(_modified_ns(path) for path in paths))


@lru_cache(_CONTEXTS_MAX)
def _context(options: TlsOptions, _modified: tuple[int, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _VERSIONS[options.version_min]
    context.maximum_version = _VERSIONS[options.version_max]
    context.check_hostname = options.verifies_host
    if not options.verifies_certificate:
        context.verify_mode = ssl.CERT_NONE
    elif options.ca_file or options.ca_pem:
        _load_authorities(context, options)
    else:
        context.load_default_certs()
    if options.crl_file:
        with _naming("ssl.crl.location", options.crl_file):
            context.load_verify_locations(options.crl_file)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if options.ciphers:
        with _naming("ssl.cipher.suites", options.ciphers):
            context.set_ciphers(options.ciphers)
    if options.certificate_file or options.certificate_pem:
        _load_identity(context, options)
    return context


def _load_authorities(context: ssl.SSLContext, options: TlsOptions) -> None:
    if options.ca_file:
        with _naming("ssl.ca.location", options.ca_file):
            _check_pem(options.ca_file)
            context.load_verify_locations(options.ca_file)
    else:
        with _naming("ssl.ca.pem", ""):
            context.load_verify_locations(cadata=options.ca_pem)


def _load_identity(context: ssl.SSLContext, options: TlsOptions) -> None:
    """Load the client's certificate and key, each from a file or from text."""
    # Without this OpenSSL would ask for a password on the terminal.
    password = options.key_password or (lambda: "")
    with (
        _naming("ssl.certificate.location", options.certificate_file, " and its key (is ssl.key.password right?)"),
        _file_of(options.certificate_file, options.certificate_pem) as certificate,
        _file_of(options.key_file, options.key_pem) as key,
    ):
        context.load_cert_chain(certificate, key, password)


@contextmanager
def _file_of(path: str, pem: str) -> Iterator[str]:
    """Yield a path of the PEM file, or of a file in memory that has the text."""
    if path:
        _check_pem(path)
        yield path
        return
    descriptor = os.memfd_create("logbrook-pem")
    try:
        os.write(descriptor, pem.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


@contextmanager
def _naming(option: str, value: str, addition: str = "") -> Iterator[None]:
    """Name the option if OpenSSL cannot use what it names."""
    try:
        yield
    except ssl.SSLError as error:
        reason = (_reason(error) or str(error.args[0])).lower().replace("_", " ")
        raise SecurityOptionError(option, f"{value or 'the PEM text'}{addition} cannot be used: {reason}") from None
    except OSError as error:
        raise SecurityOptionError(option, f"{error.filename or value} cannot be read: {error.strerror}") from None


def _check_pem(path: str) -> None:
    with open(path, "rb") as file:
        content = file.read(1 << 20)
    if _PEM_MARK not in content:
        raise SecurityOptionError(
            "ssl.ca.location and ssl.certificate.location",
            f"{path} is not a PEM file; convert a JKS or PKCS12 store with keytool and `openssl pkcs12 -nodes`",
        )


def _modified_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns if path else 0
    except OSError:
        return 0


def tls_error(host: str, port: int, error: OSError, *, is_handshake: bool, has_certificate: bool) -> Exception:
    """Return the ClientError to raise for one of the TLS layer: one sentence about the cause and what to do.

    If the error says only that the connection is lost, after the handshake, a ConnectionResetError.
    """
    address = f"{host}:{port}"
    reason = _reason(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return BrokerCertificateError(host, port, _certificate_message(host, address, error))
    if reason in _CERTIFICATE_ALERTS or (reason == "SSLV3_ALERT_HANDSHAKE_FAILURE" and not has_certificate):
        return ClientCertificateError(host, port, f"{address} {_refusal_message(reason, has_certificate)}")
    if message := _protocol_message(reason, is_handshake):
        return WrongSecurityProtocolError(host, port, f"{address} {message}")
    return TlsHandshakeClosedError(host, port, _short(error)) if is_handshake else ConnectionResetError(_short(error))


def _refusal_message(reason: str, has_certificate: bool) -> str:
    if not has_certificate:
        return "requires a client certificate; set ssl.certificate.location and ssl.key.location"
    return f"refuses the client's certificate: {reason.rpartition('ALERT_')[2].lower().replace('_', ' ')}"


def _protocol_message(reason: str, is_handshake: bool) -> str:
    if is_handshake and reason in _NO_TLS:
        hint = "the listener is plain text (security.protocol=PLAINTEXT or SASL_PLAINTEXT), or not a Kafka broker"
        return f"does not answer with TLS: {hint}"
    if reason in _NO_COMMON_VERSION:
        return "has no version of TLS or cipher in common; check ssl.enabled.protocols and ssl.cipher.suites"
    return ""


def _certificate_message(host: str, address: str, error: ssl.SSLCertVerificationError) -> str:
    code = error.verify_code
    if code in _OTHER_HOST:
        return (
            f"the certificate of {address} is not for {host}: connect by a name that is in it, or set "
            "ssl.endpoint.identification.algorithm to nothing to skip this check"
        )
    if code == _EXPIRED:
        return f"the certificate of {address} has expired; it must be renewed there"
    if code == _NOT_YET_VALID:
        return f"the certificate of {address} is not valid yet; check the clocks"
    if code == _REVOKED:
        return f"the certificate of {address} is revoked"
    if code in _UNTRUSTED:
        return (
            f"the certificate of {address} is not from a trusted authority; set ssl.ca.location to the PEM file of its "
            "authority"
        )
    return f"the certificate of {address} is not accepted: {error.verify_message}"


def _short(error: OSError) -> str:
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionResetError | BrokenPipeError):
        return "the broker closed it"
    return _reason(error) or error.strerror or str(error)


def _reason(error: OSError) -> str:
    """Return OpenSSL's name of the error; not every SSLError has one."""
    return getattr(error, "reason", None) or ""
