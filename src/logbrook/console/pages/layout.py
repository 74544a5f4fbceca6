"""The frame of every page (navigation, cluster state, dark mode), and dialogs and tiles that pages share.

Every page has one heading of level 1, its title, and headings of level 2 for its sections.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from nicegui import Client, app, ui
from nicegui.elements.mixins.text_element import TextElement
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from logbrook.console.cluster import ClusterAsker, describe_error
from logbrook.console.login_page import LOGIN_PATH, LOGOUT_PATH
from logbrook.console.sampling import ConsoleSampler
from logbrook.console.schema_values import SchemaValues
from logbrook.console.workspace import CurrentAccess, current_session
from logbrook.model import LogbrookError
from logbrook.model.version import VERSION

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#0f766e"/>'
    '<path d="M7 10h18M7 16h12M7 22h15" stroke="#fff" stroke-width="3.2" stroke-linecap="round"/></svg>'
)
_LINKS = (
    ("Overview", "/", "insights"),
    ("Topics", "/topics", "topic"),
    ("Groups", "/groups", "group"),
    ("Pipelines", "/pipelines", "account_tree"),
    ("Cluster", "/cluster", "hub"),
    ("Broker", "/broker", "dns"),
)
_STYLE = """
body { background: #f5f7f8; }
body.body--dark { background: #101517; }
body.body--dark .q-card, body.body--dark .q-table__card, body.body--dark .q-drawer { background: #182023; }
.q-drawer { background: #ffffff; }
.q-card, .q-table__card { box-shadow: none; border: 1px solid #8883; border-radius: 10px; }
.q-table td, .q-table th { white-space: nowrap; }
.q-table td { max-width: min(22rem, 60vw); overflow: hidden; text-overflow: ellipsis; }
.q-table td.wide { white-space: normal; min-width: 16rem; max-width: 40rem; overflow-wrap: anywhere; }
.q-table td.short { max-width: 13rem; }
/* On a phone, columns to the right are scrolled to: names leave room for them, and long texts do not make rows tall. */
@media (max-width: 599px) {
  .q-table td { max-width: 42vw; }
  .q-table td.wide { white-space: nowrap; max-width: none; }
  .q-table.q-table td, .q-table.q-table th { padding-left: 10px; padding-right: 10px; }
  .q-tab { padding: 0 10px; }
  .q-tab__icon { display: none; }
}
.q-table tr.marked td { background: #0f766e26; }
.q-table tr:focus-visible, .q-card:focus-visible { outline: 2px solid var(--q-primary); outline-offset: -2px; }
.q-table__bottom--nodata { white-space: normal; }
.q-table__bottom-nodata-icon { display: none; }
h1, h2 { letter-spacing: normal; }
.q-table a { color: var(--q-primary); font-weight: 500; text-decoration: none; }
.q-table a:hover { text-decoration: underline; }
.mono, .mono textarea { font-family: ui-monospace, 'DejaVu Sans Mono', monospace; font-size: .82rem; }
.nav { border-radius: 8px; padding: .55rem .8rem; color: inherit !important; text-decoration: none; }
.nav:hover { background: #8882; }
.nav.here { background: #0f766e22; color: var(--q-primary) !important; font-weight: 600; }
.tile-value { font-size: 1.6rem; font-weight: 600; line-height: 1.2; font-variant-numeric: tabular-nums; }
.faint { opacity: .65; }
.q-btn { text-transform: none; }
.q-notification { max-width: min(44rem, 94vw); }
.q-notification__message { font-size: .95rem; line-height: 1.4; overflow-wrap: anywhere; max-height: 40vh;
  overflow-y: auto; }
.q-btn-toggle .q-btn { padding: 2px 12px; }
/* The browser's own controls, such as the picker of a time. */
body.body--dark { color-scheme: dark; }
body.body--dark .text-primary, body.body--dark .q-table a, body.body--dark .q-field__control { --q-primary: #2dd4bf; }
body.body--dark .nav.here { background: #2dd4bf1f; color: #2dd4bf !important; }
body.body--dark .text-negative { --q-negative: #f87171; }
body.body--dark .q-table tr.marked td { background: #2dd4bf2b; }
body.body--dark .q-table tr:focus-visible, body.body--dark .q-card:focus-visible { outline-color: #2dd4bf; }
@media (prefers-reduced-motion: reduce) {
  *, ::before, ::after { transition: none !important; animation: none !important; }
}
"""
# The choice is kept in a cookie, so that the server renders the page in the right mode at once.
_REMEMBER_DARK = "document.cookie = 'logbrook_dark={}; path=/; max-age=31536000; samesite=strict'"

# Times are shown in the browser's time zone, which only scripts know.
_SCRIPT = """<script>
window.logbrookTime = (ms, seconds) => {
  const moment = new Date(ms - new Date(ms).getTimezoneOffset() * 60000)
  if (ms == null || !(ms >= 0) || isNaN(moment)) return "-"
  const text = moment.toISOString().replace("T", " ").replace("Z", "")
  return seconds ? text.split(".")[0] : text
}
window.logbrookCopy = async text => {
  try { await navigator.clipboard.writeText(text) } catch {
    // The clipboard's API needs HTTPS or localhost.
    const area = Object.assign(document.createElement("textarea"), {value: text})
    document.body.append(area)
    area.select()
    document.execCommand("copy")
    area.remove()
  }
}
</script>"""

# Timeout of requests to the browser, which may be slow or far away.
BROWSER_S = 10.0
_ERROR_LENGTH_MAX = 1_000
_WORD_LENGTH_MAX = 60
_LONG_WORD = re.compile(rf"\S{{{_WORD_LENGTH_MAX + 1},}}")
_READING_MS_PER_CHARACTER = 60


@dataclass(frozen=True, slots=True)
class ConsoleContext:
    """The state that a page shows: that of the session it belongs to. `schemas` is None without a schema registry."""

    schemas: SchemaValues | None = None
    access: ClusterAsker = field(default_factory=CurrentAccess)

    @property
    def sampler(self) -> ConsoleSampler:
        return current_session().workspace.sampler


@contextmanager
def frame(console: ConsoleContext, title: str, here: str) -> Iterator[None]:
    """Build the page around its content, which is built inside the block. `here` is the link of its section."""
    # Unexpected errors are shown too; their traceback is in the console's log.
    ui.on_exception(lambda error: show_error(f"the console has a bug: {error!r}"))
    ui.page_title(f"{title} · Logbrook")
    ui.add_css(_STYLE)
    ui.add_head_html(_SCRIPT)
    ui.colors(primary="#0f766e", secondary="#475569", accent="#7c3aed", positive="#15803d", negative="#b91c1c")
    chosen = ui.context.client.request.cookies.get("logbrook_dark")
    dark = ui.dark_mode({"dark": True, "light": False}.get(chosen or ""))
    # Without a value the drawer would query the browser, and a slow browser would cause a timeout.
    drawer = ui.left_drawer(value=False, bordered=True).props("show-if-above width=210 breakpoint=900")
    with drawer, ui.column().classes("w-full gap-1"):
        for name, link, icon in _LINKS:
            _link(name, link, icon, is_here=link == here)
        ui.separator().classes("my-2")
        _link("HTTP API", "/api/docs", "api")
        ui.label(f"Logbrook {VERSION}").classes("text-xs faint px-3 pt-2")
    with ui.header().classes("items-center no-wrap px-3 py-2 gap-3"):
        ui.button(icon="menu", on_click=drawer.toggle).props('flat round dense color=white aria-label="Menu"')
        ui.label("Logbrook").classes("text-lg font-semibold")
        ui.space()
        state = ui.label().classes("text-xs rounded-full px-3 py-1 truncate").props("id=state")
        _sign_out_button(current_session().user)
        _dark_button(dark)
    with ui.column().classes("w-full max-w-screen-xl mx-auto p-2 sm:p-4 gap-4"):
        banner = ui.card().classes("w-full bg-negative text-white").props("id=problem role=alert")
        with banner:
            problem = ui.label().classes("break-words")
        banner.visible = False
        TextElement(tag="h1", text=title).classes("text-2xl font-semibold break-all")
        yield

    def show_state() -> None:
        if current_session().is_ended:
            ui.navigate.to(LOGIN_PATH)
            return
        sampler = console.sampler
        banner.visible = sampler.problem is not None
        problem.text = "" if sampler.problem is None else f"The cluster does not respond: {sampler.problem}"
        state.text = (
            "connecting …"
            if not sampler.has_sampled
            else "no answer"
            if sampler.problem
            else console.access.bootstrap_servers
        )
        state.classes(
            add="bg-red-800" if sampler.problem else "bg-black/25",
            remove="bg-black/25" if sampler.problem else "bg-red-800",
        )

    show_state()
    ui.timer(1.0, show_state)


def _link(name: str, target: str, icon: str, *, is_here: bool = False) -> None:
    link = ui.link(target=target).classes("nav w-full" + (" here" if is_here else ""))
    with link, ui.row().classes("items-center gap-3 no-wrap"):
        ui.icon(icon, size="sm")
        ui.label(name)


def _sign_out_button(user: str) -> None:
    """Show who is signed in, if there is a login."""
    if not user:
        return
    ui.label(user).classes("text-sm truncate shrink-0 max-w-[6rem] sm:max-w-[14rem]").props("id=user")
    with ui.element("form").props(f"method=post action={LOGOUT_PATH}"):
        ui.button(icon="logout").props('type=submit flat round dense color=white aria-label="Sign out"')


def _dark_button(dark: ui.dark_mode) -> None:
    async def switch() -> None:
        is_dark = dark.value
        if is_dark is None:
            is_dark = await ui.run_javascript("Quasar.Dark.isActive", timeout=BROWSER_S)
        dark.value = not is_dark
        ui.run_javascript(_REMEMBER_DARK.format("light" if is_dark else "dark"))

    ui.button(icon="contrast", on_click=switch).props('flat round dense color=white aria-label="Light or dark"')


@contextmanager
def errors_shown() -> Iterator[None]:
    """Show errors of the block to the user instead of raising them."""
    try:
        yield
    except LogbrookError as error:
        show_error(describe_error(error))
    except ValueError as error:
        show_error(str(error))


def show_error(message: str) -> None:
    """Show an error at the top of the page, long enough to be read; it can be closed."""
    text = _LONG_WORD.sub(lambda match: f"{match[0][:_WORD_LENGTH_MAX]}…", message)
    text = text if len(text) <= _ERROR_LENGTH_MAX else text[:_ERROR_LENGTH_MAX] + " …"
    ui.notify(
        text,
        color="negative",
        textColor="white",
        icon="error",
        position="top",
        timeout=8_000 + _READING_MS_PER_CHARACTER * len(text),
        # The default button has the color of the page's theme, which is not readable on red.
        actions=[{"label": "Close", "color": "white", "flat": True, "noCaps": True}],
    )


def heading(text: str) -> TextElement:
    """Add the heading of a section."""
    return TextElement(tag="h2", text=text).classes("text-lg font-semibold break-all")


def group_link(group_id: str) -> str:
    """Return the address of a group's page."""
    if group_id in (".", ".."):
        # A browser would resolve these as parts of a path.
        return f"/group?id={group_id}"
    return f"/groups/{quote(group_id, safe='')}"


def topic_link(topic: str) -> str:
    """Return the address of a topic's page."""
    return f"/topics/{quote(topic, safe='')}"


def add_error_page(console: ConsoleContext) -> None:
    """Answer requests for unknown pages with a page that has the navigation."""

    async def no_such_page(request: Request, error: Exception) -> Response:
        if request.url.path.startswith("/_nicegui"):
            detail = error.detail if isinstance(error, HTTPException) else "Not Found"
            return JSONResponse({"detail": detail}, status_code=404)
        with Client(ui.page(""), request=request) as client, frame(console, "There is no such page", ""):
            ui.label(f"Nothing is at {request.url.path}.").classes("break-all")
            ui.label("The pages are in the navigation; the HTTP API is documented at /api/docs.")
            ui.link("Go to the overview", "/").classes("text-primary")
        return client.build_response(request, 404)

    app.add_exception_handler(404, no_such_page)


async def confirmed(question: str, details: str, action: str, *, typed: str | None = None) -> bool:
    """Ask for confirmation; with `typed`, the user has to type that text first."""
    with ui.dialog() as dialog, ui.card().classes("w-96 max-w-full"):
        heading(question)
        ui.label(details).classes("whitespace-pre-line break-words")
        field = ui.input(f"Type {typed} to confirm").classes("w-full") if typed else None
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat")
            sure = ui.button(action, on_click=lambda: dialog.submit(True), color="negative")
        if field is not None:
            sure.bind_enabled_from(field, "value", lambda value: value == typed)
    return bool(await answer_of(dialog))


async def answer_of(dialog: ui.dialog) -> Any:
    """Show a dialog until it is submitted, and delete it. Returns None if it is cancelled or the page is left."""
    answer = await dialog
    if not dialog.is_deleted:
        dialog.delete()
    return answer


def tile(title: str) -> ui.label:
    """Add a card with a title and a value; returns the label of the value."""
    with ui.card().classes("grow min-w-[9rem] gap-0 p-4"):
        ui.label(title).classes("text-sm faint")
        return ui.label("-").classes("tile-value")
