"""`python -m tests.spark.exactly_once`: the campaigns of `make exactly-once`, against Logbrook and Apache Kafka."""

import sys
from pathlib import Path

from logbrook.testing.exactly_once.command import main
from logbrook.testing.reaper import Reaper
from tests.interop.java.download_cache import MissingToolError
from tests.interop.java.jars import tools_classpath
from tests.interop.java.kafka_broker import KafkaBroker


class RestartableKafka:
    """Apache Kafka as the broker of a campaign. Raises MissingToolError where it cannot be installed."""

    def __init__(self, directory: Path, reaper: Reaper) -> None:
        self._reaper = reaper
        self._group: int | None = None
        self._broker = KafkaBroker(tools_classpath(), directory, in_own_session=True)
        self._broker.prepare()

    @property
    def bootstrap_servers(self) -> str:
        return self._broker.bootstrap_servers

    def start(self) -> None:
        self._broker.launch()
        self._group = self._broker.pid
        self._reaper.watch_group(self._group)
        self._broker.wait_until_ready()

    def kill(self) -> None:
        self._broker.kill()
        if self._group is not None:
            self._reaper.forget_group(self._group)
            self._group = None


def kafka_is_available() -> bool:
    try:
        tools_classpath()
    except MissingToolError as error:
        sys.stderr.write(f"NO APACHE KAFKA, SO NOTHING IS SHOWN WITH ONE: {error}\n")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main({"kafka": RestartableKafka} if kafka_is_available() else {}))
