"""The pytest plugin, as used by other projects."""

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


def test_a_test_can_create_topics(pytester: pytest.Pytester) -> None:
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
    # The session that this test is part of may have one already.
    before = sum(thread.name == "logbrook-broker" for thread in threading.enumerate())
    result = run(
        pytester,
        f"""
    import threading

    def test_nothing():
        assert sum(thread.name == "logbrook-broker" for thread in threading.enumerate()) == {before}
""",
    )
    result.assert_outcomes(passed=1)


def test_the_plugin_imports_no_server_until_it_is_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
    import sys

    def test_nothing():
        assert not [name for name in sys.modules if name.startswith(("logbrook.server", "uvloop", "logbrook.config"))]
""")
    result = pytester.runpytest_subprocess("-q", "-p", "no:hypothesispytest", "-p", "no:anyio")
    result.assert_outcomes(passed=1)


def test_each_fixture_is_documented(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--fixtures", "-q")
    result.stdout.fnmatch_lines(["*logbrook -- *", "*A broker, and a fresh topic named after the test.*"])


def test_a_fixture_writes_and_reads_its_topic(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
    def test_records(logbrook):
        logbrook.produce("a", b"b", key="k", headers={"h": "1"})
        assert [(record.key, record.value) for record in logbrook.records()] == [(b"k", b"a"), (b"k", b"b")]
""",
    )
    result.assert_outcomes(passed=1)


def test_a_broker_that_a_test_killed_or_paused_runs_for_the_next_test(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
    def test_kill(logbrook):
        logbrook.broker.kill()

    def test_pause(logbrook):
        logbrook.produce("a")
        logbrook.broker.pause()

    def test_after(logbrook):
        logbrook.produce("a")
""",
    )
    result.assert_outcomes(passed=3)


def test_a_failed_test_shows_the_log_and_the_topics_of_its_broker(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
    from logbrook import Broker

    def test_passes(logbrook):
        logbrook.produce("unwanted")

    def test_with_fixture(logbrook):
        logbrook.produce("wanted" * 100, key="k")
        assert False

    def test_with_block():
        with Broker(["stopped"]) as broker:
            broker.produce("stopped", "last words")
            broker.pause()
            broker.resume()
            assert False

    def test_paused():
        with Broker(["waiting"]) as broker:
            broker.pause()
            assert False
""",
    )
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(
        [
            "*Logbrook at 127.0.0.1:*: log -*",
            "*topic created topic=test_with_fixture-*",
            "*Logbrook at 127.0.0.1:*: topics -*",
            "test_with_fixture-*: 1 partition, 1 records",
            "  0:0 key='k' value='wantedwanted*'... (600 bytes)",
            "*Logbrook at 127.0.0.1:*: topics -*",
            "stopped: 1 partition, 1 records",
            "  0:0 key=null value='last words'",
            "*Logbrook at 127.0.0.1:*: topics -*",
            "not shown: the broker is paused",
        ]
    )


def test_a_passed_test_and_an_expected_error_show_nothing(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
    import pytest
    from logbrook import Broker

    def test_expected():
        with pytest.raises(ZeroDivisionError), Broker(["expected-to-fail"]):
            1 / 0

    def test_fails_without_a_broker():
        assert False
""",
    )
    result.assert_outcomes(passed=1, failed=1)
    # The session that this test is part of may have a broker of its own.
    assert "expected-to-fail" not in result.stdout.str()
