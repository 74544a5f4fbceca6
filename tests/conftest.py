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
# The scheduler `worksteal` gives each worker an equal part of the tests, in order. A worker without tests takes half of
# another's, from the end. Long folders come first, so that the last tests to run are short ones, and the tests that
# share a Spark session come first of all, half of them on each of two workers: one worker alone would take longer for
# them than all others for the rest. They stay there, and thus share two JVMs, until nothing else is left to take.
# `--dist loadgroup` would exclude even that, but deals all other tests out one by one, which takes 2 ms for each and
# starts the brokers and JVMs of every folder on every worker.
COSTLY_FIRST = ("object_store", "interop", "console", "kill", "crash", "cluster", "spark", "simulation", "hostile")

# Files and folders that are slow as a whole: they start processes, restart brokers, or explore long sequences of
# operations. `make test-fast` leaves them out.
SLOW = (
    "tests/unit/cli/",
    "tests/unit/bench/",
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
    """Sort tests by cost; the first two workers each begin with half of the files that share a Spark session."""
    ordered = sorted(items, key=rank_of)
    spark = [item for item in ordered if rank_of(item) < 0]
    if workers < 2:
        return ordered
    files = list(dict.fromkeys(item.path for item in spark))
    first = [item for item in spark if item.path in files[::2]]
    second = [item for item in spark if item.path in files[1::2]]
    others = ordered[len(spark) :]
    # Where the part of the second worker begins.
    start = max(0, len(items) // workers - len(first))
    return [*first, *others[:start], *second, *others[start:]]


def rank_of(item: pytest.Item) -> int:
    """Return the position of a test's group: the Spark session, the costly folders, the others."""
    if "spark" in getattr(item, "fixturenames", ()):
        return -1
    folder = part_of(item.nodeid).removeprefix("tests/")
    return COSTLY_FIRST.index(folder) if folder in COSTLY_FIRST else len(COSTLY_FIRST)


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
