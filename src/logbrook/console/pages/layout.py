"""What is around every page: the way to the others, whether the cluster answers, light and dark."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nicegui import ui

from logbrook.console.cluster import ClusterAccess
from logbrook.console.sampling import Sampler
from logbrook.console.sentences import sentence_of
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
    ("Broker", "/broker", "dns"),
)
_STYLE = """
body { background: #f5f7f8; }
body.body--dark { background: #101517; }
body.body--dark .q-card, body.body--dark .q-table__card, body.body--dark .q-drawer { background: #182023; }
.q-drawer { background: #ffffff; }
.q-card, .q-table__card { box-shadow: none; border: 1px solid #8883; border-radius: 10px; }
.q-table td, .q-table th { white-space: nowrap; }
.q-table td.wide { white-space: normal; min-width: 16rem; overflow-wrap: anywhere; }
.q-table a { color: var(--q-primary); font-weight: 500; text-decoration: none; }
.q-table a:hover { text-decoration: underline; }
.mono, .mono textarea { font-family: ui-monospace, 'DejaVu Sans Mono', monospace; font-size: .82rem; }
.nav { border-radius: 8px; padding: .55rem .8rem; color: inherit !important; text-decoration: none; }
.nav:hover { background: #8882; }
.nav.here { background: #0f766e22; color: var(--q-primary) !important; font-weight: 600; }
.tile-value { font-size: 1.6rem; font-weight: 600; line-height: 1.2; font-variant-numeric: tabular-nums; }
.faint { opacity: .65; }
.q-btn { text-transform: none; }
.q-btn-toggle .q-btn { padding: 2px 12px; }
body.body--dark .text-primary, body.body--dark .q-table a { --q-primary: #2dd4bf; }
body.body--dark .nav.here { background: #2dd4bf1f; color: #2dd4bf !important; }
body.body--dark .text-negative { --q-negative: #f87171; }
@media (prefers-reduced-motion: reduce) {
  *, ::before, ::after { transition: none !important; animation: none !important; }
}
"""
# The choice is kept in the browser; the page is drawn right from the start by reading the cookie that holds it.
_REMEMBER_DARK = "document.cookie = 'logbrook_dark={}; path=/; max-age=31536000; samesite=strict'"

# A browser may be slow, or far away.
_BROWSER_S = 10.0


@dataclass(frozen=True, slots=True)
class Console:
    """What every page works with."""

    access: ClusterAccess
    sampler: Sampler


@contextmanager
def frame(console: Console, title: str, here: str) -> Iterator[None]:
    """Everything but the content, which is built inside of it. `here` is the link of the part that it belongs to."""
    # What nobody has foreseen is told as well, and stands in the console's log with its traceback.
    ui.on_exception(lambda error: complain(f"the console has a bug: {error!r}"))
    ui.page_title(f"{title} · Logbrook")
    ui.add_css(_STYLE)
    ui.colors(primary="#0f766e", secondary="#475569", accent="#7c3aed", positive="#15803d", negative="#b91c1c")
    chosen = ui.context.client.request.cookies.get("logbrook_dark")
    dark = ui.dark_mode({"dark": True, "light": False}.get(chosen or ""))
    # Without a value the drawer would ask the browser for one, and a slow browser would not answer in time.
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
        _dark_button(dark)
    with ui.column().classes("w-full max-w-screen-xl mx-auto p-2 sm:p-4 gap-4"):
        banner = ui.card().classes("w-full bg-negative text-white").props("id=problem role=alert")
        with banner:
            problem = ui.label().classes("break-words")
        banner.visible = False
        ui.label(title).classes("text-2xl font-semibold break-all")
        yield

    def show_state() -> None:
        sampler = console.sampler
        banner.visible = sampler.problem is not None
        problem.text = "" if sampler.problem is None else f"The cluster does not answer: {sampler.problem}"
        state.text = (
            "asking …"
            if not sampler.has_asked
            else "no answer"
            if sampler.problem
            else console.access.bootstrap_servers
        )
        state.classes(
            add="bg-red-800" if sampler.problem else "bg-white/20",
            remove="bg-white/20" if sampler.problem else "bg-red-800",
        )

    show_state()
    ui.timer(1.0, show_state)


def _link(name: str, target: str, icon: str, *, is_here: bool = False) -> None:
    link = ui.link(target=target).classes("nav w-full" + (" here" if is_here else ""))
    with link, ui.row().classes("items-center gap-3 no-wrap"):
        ui.icon(icon, size="sm")
        ui.label(name)


def _dark_button(dark: ui.dark_mode) -> None:
    async def switch() -> None:
        is_dark = dark.value
        if is_dark is None:
            is_dark = await ui.run_javascript("Quasar.Dark.isActive", timeout=_BROWSER_S)
        dark.value = not is_dark
        ui.run_javascript(_REMEMBER_DARK.format("light" if is_dark else "dark"))

    ui.button(icon="contrast", on_click=switch).props('flat round dense color=white aria-label="Light or dark"')


@contextmanager
def telling() -> Iterator[None]:
    """What goes wrong inside is told to the person, and ends there."""
    try:
        yield
    except LogbrookError as error:
        complain(sentence_of(error))
    except ValueError as error:
        complain(str(error))


def complain(sentence: str) -> None:
    ui.notify(sentence, type="negative", position="top", multi_line=True, timeout=8000, close_button="Close")


async def confirmed(question: str, told: str, action: str, *, typed: str | None = None) -> bool:
    """Ask before something is destroyed. With `typed`, that has to be typed first."""
    with ui.dialog() as dialog, ui.card().classes("w-96 max-w-full"):
        ui.label(question).classes("text-lg font-semibold break-all")
        ui.label(told)
        field = ui.input(f"Type {typed} to go on").classes("w-full") if typed else None
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat")
            sure = ui.button(action, on_click=lambda: dialog.submit(True), color="negative")
        if field is not None:
            sure.bind_enabled_from(field, "value", lambda value: value == typed)
    answer = await dialog
    dialog.delete()
    return bool(answer)


def tile(title: str) -> ui.label:
    """A number with a name; returns the label of the number."""
    with ui.card().classes("grow min-w-[9rem] gap-0 p-4"):
        ui.label(title).classes("text-sm faint")
        return ui.label("-").classes("tile-value")
