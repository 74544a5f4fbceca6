"""The health of the cluster of a chaos test: all brokers run, and each knows all replicas to be in sync."""

from logbrook.client import Client, ClientError
from logbrook.protocol.errors import ProtocolError
from logbrook.protocol.messages.metadata import MetadataResponse
from logbrook.testing.chaos.cluster import CLUSTER_NAME, ChaosCluster
from logbrook.testing.chaos.plan import NODES
from logbrook.testing.processes import wait_until

HEALTHY_S_MAX = 120.0
_REQUEST_S = 5.0
_POLL_S = 0.1


class NotHealthyError(Exception):
    """The cluster did not become healthy in time. Carries what each broker and etcd say."""


class ReplicaHealth:
    """Asks every broker through the proxy, as a client does."""

    def __init__(self, cluster: ChaosCluster, timeout_s: float = HEALTHY_S_MAX) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._problem = ""

    def wait(self) -> None:
        """Wait until all replicas are in sync. Raises NotHealthyError, or BrokerFailedError if a process has ended."""
        if not wait_until(self._is_healthy, self._timeout_s, _POLL_S):
            raise NotHealthyError(f"not healthy after {self._timeout_s:.0f} s: {self._problem}\n{self.diagnosis()}")

    def _is_healthy(self) -> bool:
        self._cluster.check_running()
        for number in NODES:
            self._problem = self._problem_of(number)
            if self._problem:
                return False
        return True

    def _problem_of(self, number: int) -> str:
        """Return what broker `number` knows to be wrong, empty if nothing is."""
        try:
            return problem_in(self._metadata(number))
        except (ClientError, ProtocolError) as error:
            return f"broker {number} does not answer: {error}"

    def _metadata(self, number: int) -> MetadataResponse:
        with Client(self._cluster.addresses[number], timeout_s=_REQUEST_S, client_id="chaos-health") as client:
            return client.metadata()

    def diagnosis(self) -> str:
        """Return the metadata as each broker and etcd have it, and the ends of the brokers' logs."""
        lines: list[str] = []
        for number in NODES:
            lines.append(f"broker {number}, {self._cluster.addresses[number]}:")
            try:
                lines += [f"    {line}" for line in describe(self._metadata(number))]
            except (ClientError, ProtocolError) as error:
                lines.append(f"    {error}")
        lines.append(f"etcd, member {self._cluster.etcd_admin.leader()} leads:")
        lines += [f"    {key} {value}" for key, value in self._cluster.etcd_admin.entries(f"logbrook/{CLUSTER_NAME}/")]
        for number, broker in self._cluster.brokers.items():
            lines += [f"the end of the log of broker {number}:", broker.log_tail()]
        return "\n".join(lines)


def problem_in(metadata: MetadataResponse) -> str:
    """Return what is wrong in the metadata of a broker: a broker or replica that is missing."""
    brokers = sorted(broker.node_id for broker in metadata.brokers)
    if brokers != sorted(NODES):
        return f"only the brokers {brokers} are registered"
    for topic in metadata.topics:
        for partition in topic.partitions:
            name = f"{topic.name}-{partition.partition_index}"
            if partition.leader_id not in NODES:
                return f"{name} has no leader"
            if sorted(partition.replica_nodes) != sorted(NODES):
                return f"{name} has the replicas {list(partition.replica_nodes)}"
            if sorted(partition.isr_nodes) != sorted(NODES):
                return f"{name} has only {sorted(partition.isr_nodes)} in sync"
    return ""


def describe(metadata: MetadataResponse) -> list[str]:
    """Return a line for the brokers and for each partition."""
    partitions = [
        f"{topic.name}-{partition.partition_index}: leader {partition.leader_id} in epoch {partition.leader_epoch}, "
        f"replicas {list(partition.replica_nodes)}, in sync {list(partition.isr_nodes)}"
        for topic in metadata.topics
        for partition in topic.partitions
    ]
    return [f"brokers {sorted(broker.node_id for broker in metadata.brokers)}", *partitions]
