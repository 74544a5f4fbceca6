"""Audit events of a cluster: every broker writes those of its clients to the topic."""

import json
from typing import Any

from logbrook.client import Client
from logbrook.client.errors import ClientError
from logbrook.model.identifiers import Offset
from logbrook.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from logbrook.records.reader import iter_records
from logbrook.testing.cluster import Cluster
from logbrook.testing.processes import wait_until


def test_every_broker_records_the_changes_that_were_asked_of_it() -> None:
    with Cluster(3, ["orders"], settings={"security": {"audit_topic": True}}) as cluster:
        for number, broker in cluster.brokers.items():
            with Client(broker.bootstrap_servers) as client:
                request = DeleteGroupsRequest(groups_names=[f"group-{number}"])
                client.request(request, DeleteGroupsResponse)
        expected = {f"group group-{number}" for number in cluster.brokers}
        assert wait_until(lambda: expected <= {event["resource"] for event in audit_events(cluster)}, 30)


def audit_events(cluster: Cluster) -> list[dict[str, Any]]:
    """Return what is in the topic so far."""
    events: list[dict[str, Any]] = []
    with Client(cluster.bootstrap_servers) as client:
        try:
            for partition in range(client.partition_count("__audit")):
                fetched = client.fetch("__audit", partition, Offset(0), max_wait_ms=0)
                for batch in fetched.batches:
                    events += [json.loads(record.value or b"") for record in iter_records(batch, bytes_max=1 << 20)]
        except ClientError:
            # It is being created, or a partition has no leader yet.
            return []
    return events
