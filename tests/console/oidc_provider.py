"""A small OpenID Connect provider on a thread, which signs in whoever is named in `user`."""

import json
import secrets
import threading
from base64 import b64decode, urlsafe_b64encode
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.security_kit import TokenIssuer

CLIENT_ID, CLIENT_SECRET = "console", "not-known-to-browsers"


class OidcProvider:
    """`changes` are claims to put into the ID token instead of the right ones."""

    def __init__(self, folder: Path) -> None:
        self.user = "alice"
        self.changes: dict[str, Any] = {}
        # The query of the authorization request, by code.
        self._codes: dict[str, dict[str, str]] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(provider.answer_get(self.path))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self._send(provider.answer_post(body, self.headers.get("Authorization", "")))

            def _send(self, content: object) -> None:
                status = 200 if content is not None else 400
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(content).encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.tokens = TokenIssuer(folder, self.url)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def authorize(self, location: str) -> str:
        """Return the address that a browser is sent back to from the authorization endpoint at `location`."""
        assert location.startswith(f"{self.url}/authorize?")
        query = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(8)
        self._codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state'], 'iss': self.url})}"

    def answer_get(self, path: str) -> object:
        if path == "/.well-known/openid-configuration":
            return {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/jwks",
            }
        return self.tokens.keys if path == "/jwks" else None

    def answer_post(self, body: str, authorization: str) -> object:
        form = {name: values[0] for name, values in parse_qs(body).items()}
        query = self._codes.pop(form["code"], None)
        challenge = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        has_secret = b64decode(authorization.removeprefix("Basic ")).decode() == f"{CLIENT_ID}:{CLIENT_SECRET}"
        if query is None or challenge != query["code_challenge"] or not has_secret:
            return None
        claims = {"aud": CLIENT_ID, "nonce": query["nonce"], **self.changes}
        return {
            "access_token": self.tokens.token(self.user),
            "id_token": self.tokens.token(self.user, **claims),
            "expires_in": 60,
            "token_type": "Bearer",
        }
