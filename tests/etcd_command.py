"""The etcd that tests start."""

import pytest

from logbrook.testing.etcd import find_etcd


def etcd_or_skip() -> str:
    """Return the path of etcd. Skips the test without one."""
    command = find_etcd()
    if command is None:
        pytest.skip("NO ETCD, SO THE METADATA STORE AND CLUSTERS OF PROCESSES ARE NOT TESTED WITH IT: run `make etcd`")
    return command
