"""Settings and reports of the whole suite: the order of the tests, where the time went, and how much was tried."""

import gc
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from operator import itemgetter
from pathlib import Path, PurePosixPath

import hypothesis
import pytest

from tests.crash.conftest import report_states
from tests.kill.conftest import report_kills

HERE = Path(__file__).parent
# Estimated seconds of the costly files and folders in a run of `make test`, by the beginning of their tests' ids. Only
# their proportions matter; `make test` prints the times of a run. Longer beginnings count before shorter ones.
SECONDS: dict[str, float] = {
    "tests/spark/test_driver_kills.py": 35,
    "tests/spark/test_pipeline_command.py": 20,
    "tests/spark/test_jvm.py": 10,
    "tests/spark/test_session.py": 5,
    "tests/spark/test_pipeline.py": 60,
    "tests/spark/test_outages.py": 30,
    "tests/spark/test_foreach_batch.py": 15,
    "tests/spark/test_kafka_connector.py": 15,
    "tests/spark/test_schemas.py": 20,
    "tests/spark/test_tables.py": 15,
    "tests/spark/test_jobs.py": 15,
    "tests/spark/test_large_values.py": 5,
    "tests/spark/test_read_stream.py": 12,
    "tests/cluster/test_chaos.py": 50,
    "tests/cluster/": 200,
    "tests/console/": 130,
    "tests/crash/": 90,
    "tests/kill/": 65,
    "tests/hostile/": 70,
    "tests/interop/java/": 105,
    "tests/interop/node/": 18,
    "tests/interop/test_security": 65,
    "tests/interop/": 160,
    "tests/object_store/": 75,
    "tests/property/": 35,
    "tests/simulation/": 140,
    "tests/unit/bench/": 20,
    "tests/unit/cli/": 90,
    "tests/unit/testing/": 35,
    "tests/test_": 12,
}
# The beginning of the names of groups that share a Spark session.
SPARK = "spark session: "
# Tests of this time and more are begun first.
LONGEST_S = 15.0
# The time of a file that shares a Spark session and has no entry above.
SPARK_FILE_S = 8.0

# Files and folders that are slow as a whole: they start processes, restart brokers, or explore long sequences of
# operations. `make test-fast` leaves them out.
SLOW = (
    "tests/unit/cli/",
    "tests/unit/bench/",
    "tests/unit/compactor/",
    "tests/unit/server/test_compaction_worker.py",
    "tests/unit/server/test_run.py",
    "tests/unit/server/test_maintenance.py",
    "tests/unit/server/json/test_connection.py",
    "tests/unit/server/json/test_serve.py",
    "tests/unit/server/json/test_examples.py",
    "tests/unit/client/test_producer.py",
    "tests/unit/client/test_transactional.py",
    "tests/unit/model/test_event_log.py",
    "tests/unit/pipelines/test_reporter.py",
    "tests/unit/protocol/test_generated.py",
    "tests/unit/protocol/test_hostile_messages.py",
    "tests/unit/spark/schemas/",
    "tests/unit/spark/test_json_values.py",
    "tests/unit/spark/test_writer.py",
    "tests/unit/spark/pipeline/test_signals.py",
    "tests/unit/spark/tables/",
    "tests/unit/spark/test_outages.py",
    "tests/unit/spark/test_worker_daemon.py",
    "tests/unit/spark/test_worker_memory.py",
    "tests/unit/testing/test_exactly_once.py",
    "tests/unit/testing/test_exactly_once_scenarios.py",
    "tests/unit/testing/history/test_planted_bugs.py",
    "tests/unit/testing/crash/test_workload.py",
    "tests/unit/testing/test_testing_docs.py",
    "tests/unit/core/groups/test_group_properties.py",
    "tests/unit/core/transactions/test_transaction_properties.py",
    "tests/property/test_columns.py",
    "tests/property/test_index.py",
    "tests/property/test_log_model.py",
)


def pytest_configure() -> None:
    """Judge no times: the machine may be busy. Let the commands that tests interrupt see Ctrl-C: a run in the
    background ignores it, and so would they."""
    hypothesis.settings.register_profile("logbrook", deadline=None)
    hypothesis.settings.load_profile("logbrook")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Collecting creates a million objects that live until the end: no garbage to find, and a third of the time.
    gc.disable()


def pytest_collection(session: pytest.Session) -> None:
    """Import all test modules if all are to be run, each worker beginning with another part of them.

    Workers that import in the same order compile the same modules at the same time: without bytecode caches that took
    30 s of processor time per worker, against 7 s with them.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None or [Path(path).resolve() for path in session.config.args] != [HERE]:
        return
    # Those of packages have other names.
    paths = [path for path in sorted(HERE.rglob("test_*.py")) if not (path.parent / "__init__.py").exists()]
    first = len(paths) * int(worker.removeprefix("gw")) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for path in paths[first:] + paths[:first]:
        # Collection repeats and reports an import that fails.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(path.relative_to(HERE.parent).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Leave modules and test items out of later garbage collections: each full one would visit them all."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark slow files before `-m` is applied, and put what is left in order."""
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    yield
    items[:] = in_order(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def in_order(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the tests in the order in which the workers end at the same time.

    The scheduler `worksteal` gives each worker an equal number of tests, in order. A worker without tests takes half of
    another's, from the end. Each part therefore begins with costly tests, of about the same time in each part, and ends
    with short ones, so that the last tests to run are short. Files and folders stay together: they share brokers, JVMs
    and browsers.

    The tests that share a Spark session are at the beginning of one part, because each further session has to start a
    JVM. They stay on this worker until nothing else is left to take. `--dist loadgroup` would exclude even that, but
    deals all other tests out one by one, which takes 2 ms for each and starts the brokers of every folder on every
    worker.
    """
    groups: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        groups[group_of(item)].append(item)
    short = groups.pop("", [])
    parts = [Part() for _ in range(workers)]
    for name in sorted(groups, key=lambda name: (not name.startswith(SPARK), -seconds_of(name), name)):
        allowed = parts[:1] if name.startswith(SPARK) else parts
        min(allowed, key=lambda part: part.seconds).add(seconds_of(name), groups[name])
    ordered: list[pytest.Item] = []
    for number, part in enumerate(parts):
        costly = part.in_order()
        # As many as the scheduler gives to this worker.
        filled = max(0, (len(items) - len(ordered)) // (workers - number) - len(costly))
        ordered += [*costly, *short[:filled]]
        del short[:filled]
    return ordered + short


class Part:
    """The costly tests of one worker, in groups that stay together."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._groups: list[tuple[float, list[pytest.Item]]] = []

    def add(self, seconds: float, items: list[pytest.Item]) -> None:
        self.seconds += seconds
        self._groups.append((seconds, items))

    def in_order(self) -> list[pytest.Item]:
        """Return the longest tests, then those of the Spark session, then the others, each with longer ones first."""

        def rank(group: tuple[float, list[pytest.Item]]) -> tuple[bool, bool, float]:
            seconds_per_test = group[0] / len(group[1])
            return seconds_per_test < LONGEST_S, not is_spark(group[1][0]), -seconds_per_test

        return [item for _, items in sorted(self._groups, key=rank) for item in items]


def is_spark(item: pytest.Item) -> bool:
    """Return True if the test uses the Spark session that tests share."""
    return "spark" in getattr(item, "fixturenames", ())


def group_of(item: pytest.Item) -> str:
    """Return the file of a test of the Spark session, the key of another costly test, and "" for a short one."""
    if is_spark(item):
        return f"{SPARK}{item.nodeid.partition('::')[0]}"
    return max((name for name in SECONDS if item.nodeid.startswith(name)), key=len, default="")


def seconds_of(group: str) -> float:
    return SECONDS.get(group.removeprefix(SPARK), SPARK_FILE_S)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    report_states(terminalreporter)
    report_kills(terminalreporter)
    report_time(terminalreporter)


def report_time(terminalreporter: pytest.TerminalReporter) -> None:
    """Print cases and seconds per folder, the most expensive first, if there were tests of several."""
    seconds: defaultdict[str, float] = defaultdict(float)
    cases: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[part_of(report.nodeid)] += report.duration
                cases[part_of(report.nodeid)] += report.when == "setup"
    if len(seconds) > 1:
        terminalreporter.section("where the time went", sep="-")
        terminalreporter.write_line(f"{'folder':<24} {'cases':>7} {'seconds':>9}")
        for part, spent in sorted(seconds.items(), key=itemgetter(1), reverse=True):
            terminalreporter.write_line(f"{part:<24} {cases[part]:>7,} {spent:>9.1f}")
        terminalreporter.write_line(f"{'all':<24} {cases.total():>7,} {sum(seconds.values()):>9.1f}")


def part_of(nodeid: str) -> str:
    """Return the folder that a test counts for: `tests/unit/storage`, `tests/spark`, or `tests` for a file in it."""
    folders = PurePosixPath(nodeid.partition("::")[0]).parent.parts
    return "/".join(folders[: 3 if folders[1:2] == ("unit",) else 2])
