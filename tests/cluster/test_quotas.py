"""Quotas of a cluster: set on one broker, in force on all of them, and not for replication."""

from collections.abc import Callable

from logbrook.client.connection import Connection
from logbrook.config.network import split_address
from logbrook.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from logbrook.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from logbrook.testing.cluster import Cluster


def test_a_quota_holds_on_all_brokers_and_does_not_slow_down_replication(
    cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    def connect(number: int) -> Connection:
        return Connection(*split_address(cluster.brokers[number].bootstrap_servers))

    def quotas_on(number: int) -> list[tuple[str, float]]:
        with connect(number) as connection:
            response = connection.request(DescribeClientQuotasRequest(), DescribeClientQuotasResponse)
        return [(value.key, value.value) for entry in response.entries or () for value in entry.values]

    entry = EntryData(
        entity=[EntityData(entity_type="user", entity_name=None)],
        ops=[OpData(key="consumer_byte_rate", value=1.0)],
    )
    cluster.create_topic("orders", assignments=[[1, 2, 3]])
    with connect(3) as connection:
        (result,) = connection.request(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse).entries
    assert result.error_code == 0, result.error_message
    for number in cluster.brokers:
        wait_until(lambda number=number: quotas_on(number) == [("consumer_byte_rate", 1.0)])  # type: ignore[misc]
    # With a quota, followers would fetch the second record after hours, and these writes would time out.
    for value in (b"first", b"second", b"third"):
        cluster.produce("orders", value)
    for number in cluster.brokers:
        assert cluster.stored("orders", on=number) == [b"first", b"second", b"third"]
