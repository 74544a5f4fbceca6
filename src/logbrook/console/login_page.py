"""The pages that people see before they are signed in. They need no scripts, and load nothing."""

from dataclasses import dataclass
from html import escape
from urllib.parse import quote, urlsplit

from starlette.responses import HTMLResponse

LOGIN_PATH = "/login"
LOGOUT_PATH = "/logout"
SINGLE_SIGN_ON_PATH = "/oidc/start"

_ICON = (
    '<svg viewBox="0 0 32 32" width="44" height="44" aria-hidden="true"><rect width="32" height="32" rx="7" '
    'fill="#0f766e"/><path d="M7 10h18M7 16h12M7 22h15" stroke="#fff" stroke-width="3.2" stroke-linecap="round"/></svg>'
)
_STYLE = """
:root{color-scheme:light dark;--back:#f5f7f8;--card:#fff;--text:#17211f;--faint:#55626a;--line:#8a979f;--main:#0f766e;
--on-main:#fff;--bad:#b91c1c;--bad-back:#fee2e2}
@media(prefers-color-scheme:dark){:root{--back:#101517;--card:#182023;--text:#e6eceb;--faint:#a3b1b5;--line:#5f6d73;
--main:#2dd4bf;--on-main:#06231f;--bad:#fca5a5;--bad-back:#45191c}}
*{box-sizing:border-box}
body{margin:0;min-height:100vh;min-height:100dvh;display:grid;place-items:center;padding:1rem;background:var(--back);
color:var(--text);font:16px/1.45 system-ui,sans-serif}
main{width:100%;max-width:23rem;background:var(--card);border:1px solid #8883;border-radius:14px;padding:2rem 1.75rem}
header{display:flex;align-items:center;gap:.85rem;margin-bottom:1.4rem}
h1{font-size:1.3rem;line-height:1.25;margin:0}
header p{margin:.1rem 0 0;color:var(--faint);font-size:.88rem;overflow-wrap:anywhere}
form{display:grid;gap:.35rem}
label{font-size:.9rem;font-weight:600}
input{font:inherit;color:inherit;background:transparent;width:100%;padding:.62rem .75rem;margin-bottom:.75rem;
border:1px solid var(--line);border-radius:8px}
button,.button{font:inherit;font-weight:600;display:block;width:100%;padding:.68rem;border-radius:8px;cursor:pointer;
text-align:center;text-decoration:none;border:1px solid var(--main)}
button{background:var(--main);color:var(--on-main);margin-top:.25rem}
.button{color:var(--main)}
button:hover,.button:hover{filter:brightness(1.08)}
:focus-visible{outline:3px solid var(--main);outline-offset:2px}
[role=alert]{margin:0 0 1rem;padding:.6rem .75rem;border-radius:8px;background:var(--bad-back);color:var(--bad);
font-size:.92rem}
.or{display:flex;align-items:center;gap:.75rem;margin:1.1rem 0;color:var(--faint);font-size:.85rem}
.or::before,.or::after{content:"";flex:1;height:1px;background:#8885}
"""
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title} · Logbrook</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">{head}
<style>{style}</style></head><body><main><header>{icon}<div><h1>{title}</h1><p>{subtitle}</p></div></header>
{content}</main></body></html>"""
_PASSWORD_FORM = """<form method="post" action="{action}">
<input type="hidden" name="next" value="{next}" hidden>
<label for="user">User name</label>
<input id="user" name="user" value="{user}" autocomplete="username" autocapitalize="none" spellcheck="false" required
 {focus_user}>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required {focus_password}>
<button>Sign in</button></form>"""
_TOKEN_FORM = """<form method="post" action="{action}"><input type="hidden" name="next" value="{next}" hidden>
<label for="token">The console's token</label>
<input id="token" name="token" type="password" autocomplete="current-password" autofocus required>
<button>Sign in</button></form>"""
_NO_STORE = {"Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True)
class LoginView:
    """The state of a login page. `target` is the path to go to after it."""

    cluster: str
    target: str = "/"
    problem: str = ""
    user: str = ""
    has_single_sign_on: bool = False
    status: int = 200


def password_page(view: LoginView) -> HTMLResponse:
    form = _PASSWORD_FORM.format(
        action=LOGIN_PATH,
        next=escape(view.target),
        user=escape(view.user),
        focus_user="" if view.user else "autofocus",
        focus_password="autofocus" if view.user else "",
    )
    if view.has_single_sign_on:
        start = f"{SINGLE_SIGN_ON_PATH}?next={quote(view.target, safe='')}"
        form += f'<p class="or">or</p><a class="button" href="{escape(start)}">Single sign-on</a>'
    return _page(view, form)


def token_page(view: LoginView) -> HTMLResponse:
    return _page(view, _TOKEN_FORM.format(action=LOGIN_PATH, next=escape(view.target)))


def forwarding_page(target: str) -> HTMLResponse:
    """Return a page that goes to `target`.

    A redirect at the end of a visit to another site does not have cookies with SameSite=Strict, a page of our own does.
    """
    path = escape(safe_target(target))
    head = f'<meta http-equiv="refresh" content="0;url={path}">'
    content = f'<a class="button" href="{path}">Go on</a>'
    text = _PAGE.format(title="You are signed in", subtitle="", head=head, style=_STYLE, icon=_ICON, content=content)
    return HTMLResponse(text, headers=_NO_STORE)


def safe_target(text: str) -> str:
    """Return `text` if it is a path of this site, else the first page: a link must not lead elsewhere after a login."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return "/"
    is_path = text.startswith("/") and not text.startswith("//") and not (parts.scheme or parts.netloc)
    is_plain = text.isprintable() and "\\" not in text
    return text if is_path and is_plain and not parts.path.startswith((LOGIN_PATH, LOGOUT_PATH, "/oidc")) else "/"


def _page(view: LoginView, form: str) -> HTMLResponse:
    problem = f'<p role="alert">{escape(view.problem)}</p>' if view.problem else ""
    text = _PAGE.format(
        title="Sign in to Logbrook",
        subtitle=escape(view.cluster),
        head="",
        style=_STYLE,
        icon=_ICON,
        content=problem + form,
    )
    return HTMLResponse(text, status_code=view.status, headers=_NO_STORE)
