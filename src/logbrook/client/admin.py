"""What an operator asks of a cluster, as plain calls: `Admin` is for the command line and the console.

    with Client("127.0.0.1:9092") as client:
        admin = Admin(client)
        admin.topics.create("orders", partitions=6)
        print(admin.groups.describe("billing").lag)

Any Kafka cluster answers them. Nothing is tried again here.
"""

from logbrook.client.admin_configs import ConfigAdmin
from logbrook.client.admin_groups import GroupAdmin
from logbrook.client.admin_results import BrokerInfo, ClusterInfo, LogDirectory, TransactionInfo
from logbrook.client.admin_topics import TopicAdmin
from logbrook.client.client import Client
from logbrook.client.cluster import Cluster
from logbrook.client.coordinators import check
from logbrook.model import TopicPartition
from logbrook.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from logbrook.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from logbrook.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


class Admin:
    """Every call of it and of its parts may raise ClientError (a BrokerError when the cluster says no) or
    ProtocolError. It works through `client`, which stays the caller's, and belongs to one thread as that does."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.cluster = Cluster(client)
        self.configs = ConfigAdmin(client)
        self.topics = TopicAdmin(client)
        self.groups = GroupAdmin(client)

    def describe_cluster(self) -> ClusterInfo:
        """The brokers that are there."""
        answer = self.client.metadata([])
        brokers = [BrokerInfo(one.node_id, one.host, one.port, one.rack) for one in answer.brokers]
        return ClusterInfo(answer.cluster_id, answer.controller_id, tuple(sorted(brokers, key=lambda one: one.id)))

    def log_directories(self) -> list[LogDirectory]:
        """What each broker has on its disks."""
        found = []
        for broker in self.describe_cluster().brokers:
            connection = self.client.connection((broker.host, broker.port))
            answer = connection.request(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
            what = f"asking broker {broker.id} for its disks"
            check(answer.error_code, what)
            for one in answer.results:
                check(one.error_code, what)
                sizes = {
                    TopicPartition(topic.name, partition.partition_index): partition.partition_size
                    for topic in one.topics
                    for partition in topic.partitions
                }
                total_bytes, usable_bytes = _known(one.total_bytes), _known(one.usable_bytes)
                found.append(LogDirectory(broker.id, one.log_dir, sizes, total_bytes, usable_bytes))
        return found

    def transactions(self) -> list[TransactionInfo]:
        """Every transactional id that a coordinator knows, by name."""
        found = []
        for broker in self.describe_cluster().brokers:
            connection = self.client.connection((broker.host, broker.port))
            what = f"listing the transactions of broker {broker.id}"
            listed = connection.request(ListTransactionsRequest(), ListTransactionsResponse)
            check(listed.error_code, what)
            names = [one.transactional_id for one in listed.transaction_states]
            request = DescribeTransactionsRequest(transactional_ids=names)
            described = connection.request(request, DescribeTransactionsResponse).transaction_states if names else ()
            found += [
                TransactionInfo(
                    one.transactional_id,
                    one.transaction_state,
                    one.producer_id,
                    one.producer_epoch,
                    broker.id,
                    one.transaction_timeout_ms,
                    _known(one.transaction_start_time_ms),
                    tuple(TopicPartition(topic.topic, number) for topic in one.topics for number in topic.partitions),
                )
                for one in described
                # One that went away in between is not there any more.
                if not one.error_code
            ]
        return sorted(found, key=lambda one: one.transactional_id)


def _known(number: int) -> int | None:
    return None if number < 0 else number
