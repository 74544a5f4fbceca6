"""The pytest plugin, as somebody else's tests use it."""

import threading

import pytest

pytest_plugins = ["pytester"]

PRODUCING = """
    from logbrook.client import Client
    from logbrook.records.builder import build_batch
    from logbrook.records.record import Record

    BATCH = build_batch([Record(value=b"v")])
    SEEN = []

    def use(logbrook):
        with Client(logbrook.bootstrap_servers) as client:
            assert client.produce(logbrook.topic, 0, BATCH) == 0
            assert client.partitions(logbrook.topic) == [0]
        SEEN.append((logbrook.bootstrap_servers, logbrook.topic))
"""


def run(pytester: pytest.Pytester, tests: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(PRODUCING + tests)
    # Loaded once: by its entry point where the package is installed.
    return pytester.runpytest_inprocess("-q", "-W", "error", *arguments)


def test_each_test_has_a_topic_of_its_own_and_all_have_one_broker(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
    import pytest

    def test_one(logbrook):
        use(logbrook)

    @pytest.mark.parametrize("value", ["a b", "ä/ö", "x" * 300])
    def test_odd_names(logbrook, value):
        use(logbrook)

    class TestClass:
        def test_one(self, logbrook):
            use(logbrook)

    def test_all(logbrook_broker):
        addresses, topics = zip(*SEEN)
        assert set(addresses) == {logbrook_broker.bootstrap_servers}
        assert len(set(topics)) == 5
        assert topics[0].startswith("test_one-")
""",
    )
    result.assert_outcomes(passed=6)


def test_a_test_may_make_topics_of_its_own(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
    def test_more(logbrook):
        logbrook.create_topic("more", 3, {"retention.ms": "60000"})
        with Client(logbrook.bootstrap_servers) as client:
            assert client.partitions("more") == [0, 1, 2]
""",
    )
    result.assert_outcomes(passed=1)


def test_a_session_that_asks_for_no_broker_starts_none(pytester: pytest.Pytester) -> None:
    # There may be one already: the session that this test is part of has its own.
    before = sum(one.name == "logbrook-broker" for one in threading.enumerate())
    result = run(
        pytester,
        f"""
    import threading

    def test_nothing():
        assert sum(one.name == "logbrook-broker" for one in threading.enumerate()) == {before}
""",
    )
    result.assert_outcomes(passed=1)


def test_the_plugin_costs_nothing_to_those_who_do_not_use_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
    import sys

    def test_nothing():
        assert not [name for name in sys.modules if name.startswith(("logbrook.server", "uvloop", "logbrook.config"))]
""")
    result = pytester.runpytest_subprocess("-q", "-p", "no:hypothesispytest", "-p", "no:anyio")
    result.assert_outcomes(passed=1)


def test_what_each_fixture_gives_is_told(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--fixtures", "-q")
    result.stdout.fnmatch_lines(["*logbrook -- *", "*A broker, and a fresh topic named after the test.*"])
