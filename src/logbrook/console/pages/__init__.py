"""The web pages, built with nicegui: one module per section, `layout` and `widgets` for all of them.

A page shows the state of `ConsoleContext.sampler` on a timer, and calls the cluster through `ConsoleContext.access`.
May import the rest of `console` except `api` and `app`.
"""

from logbrook.console.pages import broker, cluster, groups, overview, pipelines, topics
from logbrook.console.pages.layout import ConsoleContext, add_error_page


def add_pages(console: ConsoleContext) -> None:
    """Register every page with nicegui."""
    for page in (overview, topics, groups, pipelines, cluster, broker):
        page.add(console)
    add_error_page(console)
