"""A JVM that has ended: it is noticed, and the calls that fail because of it leave no traceback in the log."""

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway

from logbrook.spark.errors import JvmEndedError
from logbrook.spark.java import use_java
from logbrook.spark.jvm import py4j_silenced, raise_if_jvm_ended

END_S_MAX = 60.0
FAILURES = (Py4JError, OSError)


def test_a_jvm_that_was_killed_is_detected_and_its_calls_log_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use_java()
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    monkeypatch.setattr(SparkContext, "_gateway", gateway)

    def call() -> int:
        time_ms: int = gateway.jvm.java.lang.System.currentTimeMillis()
        return time_ms

    # Each thread has a connection of its own, and Py4J logs a traceback for each that is broken: as an error if it
    # breaks in the middle of a call.
    with ThreadPoolExecutor(1) as second_thread:
        try:
            assert call() > 0
            assert second_thread.submit(call).result(END_S_MAX) > 0
            raise_if_jvm_ended()
        finally:
            gateway.proc.kill()
            gateway.proc.wait(END_S_MAX)
        with pytest.raises(JvmEndedError, match="killed by signal 9"):
            raise_if_jvm_ended()
        with caplog.at_level(logging.INFO), pytest.raises(FAILURES):
            call()
        assert [record for record in caplog.records if record.exc_info], "as Py4J does by itself"
        caplog.clear()
        with caplog.at_level(logging.INFO), py4j_silenced(), pytest.raises(FAILURES):
            second_thread.submit(call).result(END_S_MAX)
        assert caplog.records == []
    gateway.shutdown()
    gateway.proc.stdin.close()
