"""The driver of a scenario campaign.

    python -m logbrook.testing.exactly_once.scenario_driver MODE SERVERS DIRECTORY PARALLELISM NAME...

With the mode `run` all scenarios run at the same time, until the driver is killed or one of them fails. With `finish`
they process what is available, one after the other. Writers stop at their commits as ordered; see `stops`.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from logbrook.spark import session, source
from logbrook.spark.tables import source as tables
from logbrook.spark.tables.source import TableDataSource
from logbrook.testing.exactly_once.driver import quick_settings, stop
from logbrook.testing.exactly_once.scenarios import SCENARIOS
from logbrook.testing.exactly_once.stopping_tables import StoppingTables
from logbrook.testing.exactly_once.stopping_topics import StoppingTopics

RUN = "run"
FINISH = "finish"
# Threads for the tasks of all scenarios, of which up to eight stop at their commits. A task may fail up to 8 times
# before its query does.
_MASTER = "local[10,8]"


def main() -> int:
    mode, servers, directory, parallelism, *names = sys.argv[1:]
    conf = {
        **quick_settings(os.environ["TMPDIR"]),
        "spark.sql.shuffle.partitions": parallelism,
        # Plans of tiny data gain nothing from being revised after each stage.
        "spark.sql.adaptive.enabled": "false",
    }
    _register_stopping_sources()
    spark = session("exactly-once", master=_MASTER, conf=conf)
    scenarios = [SCENARIOS[name](servers, Path(directory), int(parallelism)) for name in names]
    if mode == FINISH:
        for scenario in scenarios:
            scenario.finish(spark)
        stop(spark)
        return 0
    for scenario in scenarios:
        scenario.start(spark)
    spark.streams.awaitAnyTermination()
    return 1


def _register_stopping_sources() -> None:
    """Make every session of this process, also those of pipelines, register the sources that stop as ordered."""

    def stopping_tables(settings: Mapping[str, str]) -> type[TableDataSource]:  # noqa: ARG001 - as `table_source`
        return StoppingTables

    source.LogbrookDataSource = StoppingTopics  # type: ignore[misc]
    tables.table_source = stopping_tables


if __name__ == "__main__":
    sys.exit(main())
