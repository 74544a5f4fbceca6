"""What pipelines say of themselves, kept up to date for the page and the API."""

from time import time

from logbrook.client.errors import BrokerError
from logbrook.console.cluster import ClusterAccess
from logbrook.console.sentences import sentence_of
from logbrook.pipelines.reading import Seen, read_on
from logbrook.pipelines.report import REPORTS_TOPIC, Report


class Pipelines:
    """`problem` is why the cluster keeps the reports to itself, if it does."""

    def __init__(self, access: ClusterAccess, topic: str = REPORTS_TOPIC) -> None:
        self._access = access
        self._topic = topic
        self._seen = Seen()
        self.problem: str | None = None

    @property
    def latest(self) -> list[Report]:
        """The last report of each, by name."""
        return self._seen.latest

    @property
    def queries(self) -> set[str]:
        """The names of all that report, which are those of consumer groups too."""
        return {sink.name for one in self._seen.latest for sink in one.sinks}

    def history(self, pipeline: str) -> tuple[Report, ...]:
        """Its last reports, the newest last."""
        return self._seen.reports.get(pipeline, ())

    async def refresh(self) -> None:
        """Read what is new. Raises LogbrookError if the cluster does not answer."""
        seen = self._seen
        try:
            self._seen = await self._access.ask(lambda admin: read_on(admin.client, self._topic, seen))
        except BrokerError as error:
            self.problem = sentence_of(error)
        else:
            self.problem = None


def now_ms() -> int:
    return round(time() * 1000)
