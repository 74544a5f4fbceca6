"""The security headers of the console: on every response, and as a browser applies them."""

import http.client
from urllib.parse import urlsplit

from playwright.sync_api import expect

from logbrook.console.guard import SECURITY_HEADERS
from logbrook.testing import Broker
from tests.console.conftest import Opened

# Requests to another host, with a script as an attacker could inject it. Returns the directives that prevented them.
_LEAK = """async () => {
    const blocked = []
    document.addEventListener("securitypolicyviolation", event => blocked.push(event.effectiveDirective))
    await fetch("http://127.0.0.2:1/").catch(() => null)
    const image = new Image()
    const failed = new Promise(resolve => image.onerror = resolve)
    image.src = "http://127.0.0.2:1/image.png"
    await failed
    return blocked.sort()
}"""


def test_every_response_has_the_security_headers(console: str, guarded_console: str) -> None:
    for url, path, headers, status in (
        (console, "/", {}, 200),
        (console, "/nothing", {}, 404),
        (console, "/api/health", {}, 200),
        (console, "/api/docs", {}, 200),
        (console, "/api/health", {"Host": "rebound.example"}, 403),
        (guarded_console, "/login", {}, 200),
        (guarded_console, "/topics", {}, 303),
        (guarded_console, "/api/health", {}, 401),
    ):
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        sent = {name: response.headers.get_all(name) for name in SECURITY_HEADERS}
        connection.close()
        assert response.status == status
        assert sent == {name: [value] for name, value in SECURITY_HEADERS.items()}
    assert "frame-ancestors 'none'" in SECURITY_HEADERS["Content-Security-Policy"]


def test_a_page_works_but_cannot_send_to_other_hosts_or_be_framed(
    broker: Broker, console: str, open_page: Opened
) -> None:
    page = open_page(console)
    expect(page.locator("#state")).to_have_text(broker.bootstrap_servers)
    assert open_page.errors == []
    assert page.evaluate(_LEAK) == ["connect-src", "img-src"]
    with page.expect_console_message(lambda message: "frame-ancestors 'none'" in message.text):
        page.set_content(f'<iframe src="{console}"></iframe>')
    # These violations of the policy are intended.
    open_page.errors.clear()
    open_page.hosts.discard("127.0.0.2")
