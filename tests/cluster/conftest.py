"""Clusters of real brokers in this process."""

from collections.abc import Iterator

import pytest

from logbrook.testing.cluster import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3) as cluster:
        yield cluster
