"""Connections to the HTTP listener of a broker, with the same security as those to its listeners for Kafka clients.

A password or token is sent as it is, so it goes to https addresses and to this machine only: whoever uses SCRAM without
TLS relies on the password not being sent over the network.
"""

from base64 import b64encode
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit

from logbrook.client.oauth import current_token
from logbrook.client.security import PLAINTEXT_SECURITY, ClientSecurity
from logbrook.client.tls import client_context
from logbrook.config.network import is_loopback


def http_connection(url: str, timeout_s: float, security: ClientSecurity = PLAINTEXT_SECURITY) -> HTTPConnection:
    """Return a connection to the host of the URL that is not open yet. Raises ValueError or ClientError."""
    parts = urlsplit(url)
    if parts.scheme != "https":
        return HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    context = client_context(security.tls) if security.protocol.uses_tls else None
    return HTTPSConnection(parts.hostname or "", parts.port, timeout=timeout_s, context=context)


def http_headers(url: str, security: ClientSecurity = PLAINTEXT_SECURITY) -> dict[str, str]:
    """Return the headers with the client's credentials; none without credentials, or if they must not be sent.

    May block to fetch a token. Raises ClientError.
    """
    parts, sasl = urlsplit(url), security.sasl
    if sasl is None or (parts.scheme != "https" and not is_loopback(parts.hostname or "")):
        return {}
    if sasl.oauth is not None:
        return {"Authorization": f"Bearer {current_token(sasl.oauth)}"}
    credentials = f"{sasl.username}:{sasl.password}".encode()
    return {"Authorization": f"Basic {b64encode(credentials).decode()}"}
