"""Where the pages of metrics come from: each is a scrape of the broker, begun when it is asked for."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TypeAlias

from logbrook.server.metrics.scrape import Observed, Scrape

Page: TypeAlias = Callable[[Scrape, Callable[[], float]], AsyncGenerator[bytes, None]]


class Pages:
    """Made when the broker starts, whose uptime it knows by that."""

    def __init__(self, broker: Observed) -> None:
        self._broker = broker
        self._clock = broker.services.clock
        self._started_s = self._clock.now_ms() / 1000
        self._started_monotonic_s = self._clock.monotonic_s()
        self._page: Page | None = None

    async def open(self) -> AsyncGenerator[bytes, None]:
        """The lines of a page, a piece at a time, each of whole lines."""
        if self._page is None:
            # A broker that is never scraped pays nothing for this, and one that is does not stand still for it.
            self._page = await asyncio.to_thread(_import_page)
        now_s = self._clock.monotonic_s
        return self._page(Scrape(self._broker, self._started_s, now_s() - self._started_monotonic_s), now_s)


def _import_page() -> Page:
    from logbrook.server.metrics.exposition import page  # noqa: PLC0415 - see above

    return page
