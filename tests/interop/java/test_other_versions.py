"""Older versions of Kafka's Java clients, which negotiate older versions of the APIs.

2.1 is the oldest that Kafka 4 itself serves (KIP-896).
"""

import pytest

from logbrook import Broker
from tests.interop.java.conftest import or_skip
from tests.interop.java.jars import clients_classpath
from tests.interop.java.tool_host import run_alone

LATER = [pytest.param(version, marks=pytest.mark.long) for version in ("2.8.2", "3.9.1")]


@pytest.mark.parametrize("version", ["2.1.1", *LATER])
def test_an_older_client_makes_a_topic_fills_it_and_reads_it_as_a_group(
    broker: Broker, scenarios_jars: str, version: str
) -> None:
    clients = or_skip(lambda: clients_classpath(version))
    classes = scenarios_jars.partition(":")[0]
    run = run_alone(f"{classes}:{clients}", "RoundTrip", broker.bootstrap_servers, f"round-trip-{version}")
    run.check()
    assert run.lines == ["read 500"]


@pytest.mark.parametrize("version", ["2.8.2", pytest.param("3.9.1", marks=pytest.mark.long)])
def test_an_older_client_commits_aborts_and_is_fenced(broker: Broker, scenarios_jars: str, version: str) -> None:
    clients = or_skip(lambda: clients_classpath(version))
    classes = scenarios_jars.partition(":")[0]
    run = run_alone(f"{classes}:{clients}", "TransactionalRoundTrip", broker.bootstrap_servers, f"in-turn-{version}")
    # The client logs in several ways that it was fenced.
    run.check(allowed="PRODUCER_FENCED|ProducerFenced|newer producer|fatal")
    assert run.lines == ["read 14"]
