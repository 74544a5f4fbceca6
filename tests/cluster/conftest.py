"""Clusters of real brokers in this process."""

from collections.abc import Callable, Iterator
from threading import Event
from time import monotonic

import pytest

from logbrook.testing.cluster import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster whose brokers keep their leases, however busy the machine is."""
    with Cluster(nodes=3, lease_s=30) as cluster:
        yield cluster


@pytest.fixture
def impatient_cluster() -> Iterator[Cluster]:
    """A cluster whose followers leave the ISR soon, and whose dead brokers are soon gone."""
    with Cluster(nodes=3, replica_lag_ms_max=500, lease_s=1.0) as cluster:
        yield cluster


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    """Wait until a condition holds."""

    def wait(condition: Callable[[], bool]) -> None:
        until_s = monotonic() + 30
        while not condition():
            assert monotonic() < until_s, "the condition does not hold after 30 s"
            Event().wait(0.01)

    return wait
