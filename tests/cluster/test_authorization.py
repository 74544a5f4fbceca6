"""ACLs in a cluster: they reach every broker, and brokers need CLUSTER_ACTION like any other principal."""

from collections.abc import Callable

from logbrook.client.connection import Connection
from logbrook.config.network import split_address
from logbrook.core.acls import CLUSTER_NAME, AclBinding, AclOperation, PatternType, PermissionType, ResourceType
from logbrook.model.security import ANONYMOUS
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from logbrook.testing.cluster import Cluster

BROKERS = AclBinding(
    ResourceType.CLUSTER,
    PatternType.LITERAL,
    CLUSTER_NAME,
    str(ANONYMOUS),
    "*",
    AclOperation.CLUSTER_ACTION,
    PermissionType.ALLOW,
)


def test_a_follower_needs_cluster_action_and_an_acl_reaches_every_broker(
    wait_until: Callable[[Callable[[], bool]], None],
) -> None:
    with Cluster(nodes=2, settings={"security.authorization": True}, lease_s=30) as cluster:
        cluster.create_topic("orders", assignments=[[1, 2]])
        services = [broker._running.services for broker in cluster.brokers.values()]
        topic_id = services[0].topics.metadata.topic("orders").id
        topic = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0)])
        fetch = FetchRequest(
            replica_state=ReplicaState(replica_id=2, replica_epoch=1), max_wait_ms=0, session_epoch=-1, topics=[topic]
        )

        def code() -> int:
            with Connection(*split_address(cluster.brokers[1].bootstrap_servers)) as connection:
                return connection.request(fetch, FetchResponse).responses[0].partitions[0].error_code

        assert code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        acls = services[1].security.acls
        cluster.brokers[2]._active.call(services[1].topics.change_security(lambda: acls.create([BROKERS])))
        assert BROKERS in acls
        wait_until(lambda: BROKERS in services[0].security.acls)
        assert code() == ErrorCode.NONE
