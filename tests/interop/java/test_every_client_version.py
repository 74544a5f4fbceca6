"""Kafka's Java clients of every minor version since 2.8: connect, administer, produce, commit, abort, read as a group.

Software bundles the clients of its time: Flink 1.x and Spark 3.5 those of 3.3 to 3.7, for example. All versions run in
one JVM, each with a class loader of its own.
"""

import pytest

from logbrook import Broker
from tests.interop.java.conftest import NEWEST, or_skip
from tests.interop.java.jars import clients_classpath
from tests.interop.java.tool_host import ToolHost

VERSIONS = (
    *("2.8.2", "3.0.2", "3.1.2", "3.2.3", "3.3.2", "3.4.1", "3.5.2", "3.6.2", "3.7.2", "3.8.1", "3.9.1"),
    *("4.0.1", "4.1.1", "4.2.0", "4.3.1", NEWEST),
)


@pytest.mark.parametrize("version", VERSIONS)
def test_clients_of_every_minor_version_work(
    broker: Broker, scenarios_host: ToolHost, scenarios_jars: str, version: str
) -> None:
    clients = or_skip(lambda: clients_classpath(version))
    classpath = f"{scenarios_jars.partition(':')[0]}:{clients}"
    run = scenarios_host.run("WithClasspath", classpath, "SmallProgram", broker.bootstrap_servers, f"clients-{version}")
    run.check()
    assert run.lines == ["read 20"]
