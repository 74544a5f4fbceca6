"""The pages, one module each; `layout` is around all of them."""

from logbrook.console.pages import broker, groups, overview, pipelines, topic, topics
from logbrook.console.pages.layout import Console


def add_pages(console: Console) -> None:
    """Register every page with nicegui."""
    for page in (overview, topics, topic, groups, pipelines, broker):
        page.add(console)
