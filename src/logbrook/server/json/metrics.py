"""MetricsFetch: the numbers that Prometheus is shown, by the names that it knows them by."""

from asyncio import Event
from contextlib import aclosing
from math import isfinite

from logbrook.protocol.json_frames import to_json
from logbrook.protocol.json_requests import MetricsFetch
from logbrook.server.metrics.pages import Pages


async def fetch_metrics(pages: Pages, request: MetricsFetch, may_be_sent: Event) -> str:
    """The text of the answer, which may be large, so that it waits until it can be sent."""
    await may_be_sent.wait()
    series: list[str] = []
    async with aclosing(await pages.open()) as page:
        async for piece in page:
            lines = piece.decode().splitlines()
            series += [_member(line) for line in lines if line[:1] not in ("", "#") and line.startswith(request.prefix)]
    return f'{{"metrics":{{{",".join(series)}}}}}'


def _member(line: str) -> str:
    name, _, number = line.rpartition(" ")
    # JSON has no word for what is not a number.
    return f"{to_json(name)}:{number if isfinite(float(number)) else 'null'}"
