"""The options of `logbrook console` for logins and HTTPS: declarations, checks, and what follows from them."""

import os
import ssl
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from logbrook.cli.client_options import given_options, security_options
from logbrook.cli.failures import fail, refuse
from logbrook.client.errors import SecurityOptionError
from logbrook.client.security import ClientSecurity, parse_client_security
from logbrook.config.network import TOKEN_VARIABLE
from logbrook.model.security import SaslMechanism, SecurityProtocol
from logbrook.model.version import install_command

if TYPE_CHECKING:
    from logbrook.console.oidc import OidcOptions

# Options of a client that the console must not have with --login.
_OWN_CREDENTIALS = ("sasl.username", "sasl.password", "sasl.jaas.config")

Token = Annotated[
    str | None,
    typer.Option(
        envvar=TOKEN_VARIABLE,
        metavar="TOKEN",
        show_envvar=True,
        help="Secret that browsers and scripts must send; it or --login is required unless the console listens on "
        "loopback.",
    ),
]
Login = Annotated[
    bool,
    typer.Option(
        "--login",
        help="Users sign in with their own user name and password of the cluster, which needs SASL "
        "(-X security.protocol=SASL_SSL); its ACLs apply to what they see and do.",
    ),
]
SessionMinutes = Annotated[
    int, typer.Option(min=1, max=60 * 24 * 30, metavar="MINUTES", help="With --login: time until users sign in again.")
]
Url = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Address by which browsers reach the console, such as https://console.example."),
]
Certificate = Annotated[
    str | None, typer.Option(metavar="FILE", help="Serve HTTPS with this certificate (PEM, with its issuers).")
]
Key = Annotated[
    str | None, typer.Option(metavar="FILE", help="Key of the certificate (PEM); default: the file of the certificate.")
]
OidcIssuer = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="With --login: OpenID Connect provider for single sign-on, whose tokens the cluster accepts "
        "(SASL/OAUTHBEARER). Needs --url and --oidc-client-id.",
    ),
]
OidcClientId = Annotated[str, typer.Option(metavar="ID", help="Client id of the console at the provider.")]
OidcClientSecretFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="File with its secret; without one it is a public client.")
]
OidcScope = Annotated[str, typer.Option(metavar="SCOPES", help="Scopes to ask the provider for.")]


def login_security() -> ClientSecurity:
    """Return the security of connections with the credentials of users. Raises SecurityOptionError."""
    options = security_options(os.environ)
    for name in _OWN_CREDENTIALS:
        if name in given_options().pairs:
            raise SecurityOptionError(name, "with --login the console uses the credentials of its users only")
        # A file of options may have those of its owner.
        options.pop(name, None)
    protocol = options.setdefault("security.protocol", SecurityProtocol.SASL_PLAINTEXT).upper()
    if protocol in (SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL):
        raise SecurityOptionError("security.protocol", f"--login needs SASL_SSL or SASL_PLAINTEXT, not {protocol}")
    if "sasl.mechanisms" not in options:
        options.setdefault("sasl.mechanism", SaslMechanism.SCRAM_SHA_512)
    # The names stand in for those of users, without which the options are not complete.
    return parse_client_security({**options, "sasl.username": "user", "sasl.password": "password"})


def check_address(url: str | None, certificate: str | None, key: str | None) -> None:
    """End the command if the URL or the certificate cannot be used."""
    if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
        refuse("--url", f"{url!r} is not the URL of the console: write https://HOST")
    if certificate is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, _no_password)
    except (OSError, ValueError) as error:
        refuse("--certificate", f"{certificate} cannot be used: {getattr(error, 'strerror', None) or error}")


def oidc_options(
    issuer: str | None, client_id: str, secret_file: str | None, scope: str, *, url: str | None, has_login: bool
) -> "OidcOptions | None":
    """Return the options of single sign-on, None without an issuer. Ends the command if they are not complete."""
    if issuer is None:
        return None
    if find_spec("joserfc") is None:
        fail(f"single sign-on is not installed: {install_command('security')}")
    if not has_login or not client_id or url is None:
        refuse("--oidc-issuer", "it needs --login, --oidc-client-id and --url, the address of the console for browsers")
    from logbrook.console.oidc import OidcOptions  # noqa: PLC0415 - the console's libraries take a second to import

    secret = ""
    if secret_file is not None:
        try:
            secret = Path(secret_file).read_text().strip()
        except OSError as error:
            refuse("--oidc-client-secret-file", f"{secret_file} cannot be read: {error.strerror}")
    return OidcOptions(issuer, client_id, url, secret, scope)


def _no_password() -> str:
    """Raises ValueError: OpenSSL would otherwise ask on the terminal."""
    raise ValueError("the key is encrypted")
