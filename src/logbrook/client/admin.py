"""Administration of a cluster: topics, replicas, groups, settings, brokers, transactions, users, ACLs and quotas.

    with Client("127.0.0.1:9092") as client:
        admin = Admin(client)
        admin.topics.create("orders", partitions=6)
        print(admin.groups.describe("billing").lag)

For the CLI and the console. It works with any Kafka cluster. Nothing is retried here.
"""

from logbrook.client.admin_acls import AclAdmin
from logbrook.client.admin_configs import ConfigAdmin
from logbrook.client.admin_features import FeatureAdmin
from logbrook.client.admin_groups import GroupAdmin
from logbrook.client.admin_quotas import QuotaAdmin
from logbrook.client.admin_replicas import ReplicaAdmin
from logbrook.client.admin_results import BrokerInfo, ClusterInfo, LogDirDescription
from logbrook.client.admin_topics import TopicAdmin
from logbrook.client.admin_transactions import TransactionAdmin
from logbrook.client.admin_users import UserAdmin
from logbrook.client.client import Client
from logbrook.client.errors import check_code
from logbrook.client.partition_requests import PartitionRequests
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId
from logbrook.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse


class Admin:
    """Works through `client`, which the caller owns. Belongs to one thread, as the client does.

    Every call, also of its parts, may raise ClientError (BrokerError for an error code) or ProtocolError.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.cluster = PartitionRequests(client)
        self.acls = AclAdmin(client)
        self.configs = ConfigAdmin(client)
        self.topics = TopicAdmin(client)
        self.features = FeatureAdmin(client)
        self.groups = GroupAdmin(client)
        self.quotas = QuotaAdmin(client)
        self.replicas = ReplicaAdmin(client)
        self.transactions = TransactionAdmin(client)
        self.users = UserAdmin(client)

    def describe_cluster(self) -> ClusterInfo:
        """Return the cluster's id, its controller and its brokers, by id."""
        response = self.client.metadata([])
        brokers = [
            BrokerInfo(BrokerId(broker.node_id), broker.host, broker.port, broker.rack) for broker in response.brokers
        ]
        brokers.sort(key=lambda broker: broker.id)
        return ClusterInfo(response.cluster_id, BrokerId(response.controller_id), tuple(brokers))

    def log_directories(self) -> list[LogDirDescription]:
        """Return the log directories of all brokers, with the size of each replica in them."""
        descriptions = []
        for broker in self.describe_cluster().brokers:
            connection = self.client.connection((broker.host, broker.port))
            response = connection.request(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
            operation = f"describing the log directories of broker {broker.id}"
            check_code(response.error_code, operation)
            for directory in response.results:
                check_code(directory.error_code, operation)
                sizes = {
                    TopicPartition(topic.name, partition.partition_index): partition.partition_size
                    for topic in directory.topics
                    for partition in topic.partitions
                }
                total_bytes, usable_bytes = map(_none_if_negative, (directory.total_bytes, directory.usable_bytes))
                descriptions.append(LogDirDescription(broker.id, directory.log_dir, sizes, total_bytes, usable_bytes))
        return descriptions


def _none_if_negative(number: int) -> int | None:
    return None if number < 0 else number
