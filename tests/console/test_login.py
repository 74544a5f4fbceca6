"""The login of the console: pages, cookies, the HTTP API, and requests that other sites make a browser send."""

import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Opened
from tests.security_kit import PASSWORDS, basic

ALICE = {"user": "alice", "password": PASSWORDS["alice"]}


class HttpAnswer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def ask(
    url: str, path: str, method: str = "GET", body: object = None, form: object = None, **headers: str
) -> HttpAnswer:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    content = None
    if isinstance(form, dict):
        content = urlencode(form)
        headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
    elif body is not None:
        content = json.dumps(body)
        headers.setdefault("Content-Type", "application/json")
    connection.request(method, path, content, {name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    answer = HttpAnswer(response.status, response.headers, response.read().decode())
    connection.close()
    return answer


def sign_in(console: str, **fields: str) -> HttpAnswer:
    return ask(console, "/login", "POST", form={**ALICE, **fields})


def cookie_of(answer: HttpAnswer) -> str:
    return answer.headers["Set-Cookie"].partition(";")[0]


def test_pages_lead_to_the_login_and_back(login_console: str) -> None:
    sent_away = ask(login_console, "/topics/orders?from=end")
    assert (sent_away.status, sent_away.headers["Location"]) == (303, "/login?next=%2Ftopics%2Forders%3Ffrom%3Dend")
    assert 'value="/topics/orders?from=end"' in ask(login_console, sent_away.headers["Location"]).text
    back = sign_in(login_console, next="/topics/orders?from=end")
    assert (back.status, back.headers["Location"]) == (303, "/topics/orders?from=end")
    assert sign_in(login_console, next="//evil.example").headers["Location"] == "/"


def test_the_cookie_is_of_no_use_to_scripts_and_other_sites(login_console: str) -> None:
    port = urlsplit(login_console).port
    name, _, attributes = sign_in(login_console).headers["Set-Cookie"].partition("=")
    assert name == f"logbrook_session_{port}"
    # The address of the console is https.
    assert {part.strip().lower() for part in attributes.split(";")[1:]} == {
        "httponly",
        "path=/",
        "samesite=strict",
        "secure",
    }


@pytest.mark.parametrize("fields", [{"password": "wrong"}, {"user": "nobody"}, {"user": "", "password": ""}])
def test_a_wrong_password_is_refused(login_console: str, fields: dict[str, str]) -> None:
    answer = sign_in(login_console, **fields)
    assert answer.status == 401
    assert "Set-Cookie" not in answer.headers
    assert "The user name or the password is wrong." in answer.text
    assert PASSWORDS["alice"] not in answer.text


def test_a_user_name_is_shown_as_text(login_console: str) -> None:
    assert "<script>" not in sign_in(login_console, user='"><script>alert(1)</script>').text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Host": "rebound.example", "Origin": "http://rebound.example"},
    ],
)
def test_other_sites_can_neither_sign_in_nor_out_nor_change_anything(
    login_console: str, headers: dict[str, str]
) -> None:
    cookie = cookie_of(sign_in(login_console))
    assert ask(login_console, "/login", "POST", form=ALICE, **headers).status == 403
    assert ask(login_console, "/logout", "POST", Cookie=cookie, **headers).status == 403
    assert (
        ask(login_console, "/api/topics", "POST", {"name": "x"}, Authorization=basic("admin"), **headers).status == 403
    )
    assert ask(login_console, "/api/session", Cookie=cookie).status == 200


def test_the_console_is_known_by_its_url(login_console: str) -> None:
    assert ask(login_console, "/login", Host="console.example").status == 200
    own = {"Host": "console.example", "Origin": "https://console.example"}
    assert ask(login_console, "/login", "POST", form=ALICE, **own).status == 303
    assert ask(login_console, "/login", Host="other.example").json["error"]["code"] == "WRONG_HOST"


def test_without_a_login_only_localhost_is_served(console: str) -> None:
    assert ask(console, "/api/health", Host="console.example").status == 403
    cross_site = ask(console, "/api/topics", "POST", {"name": "driven"}, Sec_Fetch_Site="cross-site")
    assert cross_site.json["error"]["code"] == "WRONG_ORIGIN"


def test_scripts_send_their_password_and_see_what_acls_allow(login_console: str) -> None:
    nobody = ask(login_console, "/api/topics")
    assert nobody.status == 401
    assert nobody.headers["WWW-Authenticate"].startswith("Basic ")
    assert ask(login_console, "/api/topics", Authorization=basic("alice", "wrong")).status == 401
    assert ask(login_console, "/api/topics", Authorization="Bearer x").status in (401, 503)
    alices = ask(login_console, "/api/topics", Authorization=basic("alice")).json
    assert [topic["name"] for topic in alices] == ["orders"]
    admins = ask(login_console, "/api/topics", Authorization=basic("admin")).json
    assert [topic["name"] for topic in admins] == ["orders", "payments"]
    denied = ask(login_console, "/api/topics", "POST", {"name": "mine"}, Authorization=basic("alice"))
    assert (denied.status, denied.json["error"]["code"]) == (403, "TOPIC_AUTHORIZATION_FAILED")


def test_a_change_with_the_cookie_needs_the_token_of_the_session(login_console: str) -> None:
    cookie = cookie_of(sign_in(login_console))
    records = {"records": [{"value": "hello"}]}
    path = "/api/topics/orders/messages"
    session = ask(login_console, "/api/session", Cookie=cookie).json
    assert session["user"] == "alice"
    for token in ("", "wrong"):
        refused = ask(login_console, path, "POST", records, Cookie=cookie, X_CSRF_Token=token)
        assert (refused.status, refused.json["error"]["code"]) == (403, "WRONG_CSRF_TOKEN")
    assert ask(login_console, path, "POST", records, Cookie=cookie, X_CSRF_Token=session["csrf_token"]).status == 200
    assert ask(login_console, "/api/topics", Cookie=cookie).status == 200


def test_signing_out_ends_the_session(login_console: str) -> None:
    cookie = cookie_of(sign_in(login_console))
    assert ask(login_console, "/topics", Cookie=cookie).status == 200
    assert ask(login_console, "/logout", Cookie=cookie).status == 405
    out = ask(login_console, "/logout", "POST", Cookie=cookie)
    assert (out.status, out.headers["Location"]) == (303, "/login")
    assert "Max-Age=0" in out.headers["Set-Cookie"]
    assert ask(login_console, "/topics", Cookie=cookie).status == 303
    assert ask(login_console, "/api/topics", Cookie=cookie).status == 401


def test_a_user_signs_in_sees_the_allowed_topics_and_signs_out(login_console: str, open_page: Opened) -> None:
    page = open_page(f"{login_console}/topics")
    expect(page).to_have_url(f"{login_console}/login?next=%2Ftopics")
    page.get_by_label("User name").fill("alice")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("The user name or the password is wrong.")
    expect(page.get_by_label("User name")).to_have_value("alice")
    page.get_by_label("Password").fill(PASSWORDS["alice"])
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{login_console}/topics")
    expect(page.locator("#user")).to_have_text("alice")
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    expect(page.get_by_text("payments")).to_have_count(0)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("User name")).to_be_visible()
    page.goto(f"{login_console}/topics")
    expect(page.get_by_label("User name")).to_be_visible()
