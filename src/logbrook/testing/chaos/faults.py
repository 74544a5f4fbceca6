"""The faults of a chaos test: how each begins and ends."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from signal import SIGCONT, SIGSTOP

from logbrook.client import Client, ClientError
from logbrook.protocol.errors import ProtocolError
from logbrook.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from logbrook.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from logbrook.testing.chaos.cluster import ChaosCluster, broker_node, etcd_node
from logbrook.testing.chaos.health import ReplicaHealth
from logbrook.testing.chaos.network import CLIENT, links_between
from logbrook.testing.chaos.plan import NODES, ONE_WAY, ChaosFault, FaultKind
from logbrook.testing.kill.load_client import TOPIC
from logbrook.testing.processes import wait_until

_REQUEST_S = 3.0
_MOVED_BACK_S_MAX = 120.0
_RETRY_S = 0.3


class FaultInjector:
    """Begins and ends faults, on one thread. Every fault that has begun must end."""

    def __init__(self, cluster: ChaosCluster, health: ReplicaHealth, partitions: int, seed: int) -> None:
        self._cluster = cluster
        self._health = health
        self._partitions = partitions
        self._rng = Random(f"{seed}/injector")
        # The number of faults that cut each link.
        self._cuts: Counter[tuple[str, str]] = Counter()
        # The members of etcd that faults have stopped or paused.
        self._members: dict[ChaosFault, int] = {}
        self._begin: dict[FaultKind, Callable[[ChaosFault], None]] = {
            FaultKind.KILL: lambda fault: cluster.kill(fault.broker),
            FaultKind.KILL_ALL: self._kill_all,
            FaultKind.PAUSE: lambda fault: cluster.brokers[fault.broker].signal(SIGSTOP),
            FaultKind.ROLLING_RESTART: self._restart_all,
            FaultKind.REPLACE_DISK: self._replace_disk,
            FaultKind.FULL_DISK: lambda _: cluster.fill_disk(),
            FaultKind.KILL_ETCD_LEADER: self._kill_etcd_leader,
            FaultKind.PAUSE_ETCD_LEADER: self._pause_etcd_leader,
            FaultKind.MOVE_ETCD_LEADER: self._move_etcd_leader,
            FaultKind.MOVE_PARTITIONS: self._move_away,
            FaultKind.ELECT: self._elect,
        }
        self._end: dict[FaultKind, Callable[[ChaosFault], None]] = {
            FaultKind.KILL: lambda fault: cluster.start(fault.broker),
            FaultKind.KILL_ALL: self._start_all,
            FaultKind.PAUSE: lambda fault: cluster.brokers[fault.broker].signal(SIGCONT),
            FaultKind.REPLACE_DISK: lambda fault: cluster.start(fault.broker),
            FaultKind.FULL_DISK: lambda _: cluster.free_disk(),
            FaultKind.KILL_ETCD_LEADER: self._start_etcd_member,
            FaultKind.PAUSE_ETCD_LEADER: self._resume_etcd_member,
            FaultKind.MOVE_PARTITIONS: self._move_back,
        }

    def begin(self, fault: ChaosFault) -> None:
        """Raises BrokerFailedError if a broker does not behave as the fault needs it to."""
        for link in self._links(fault):
            self._cuts[link] += 1
            self._cluster.network.cut(*link)
        self._begin.get(fault.kind, _nothing)(fault)

    def end(self, fault: ChaosFault) -> None:
        """Raises BrokerFailedError, or TimeoutError if partitions cannot be moved back."""
        for link in self._links(fault):
            self._cuts[link] -= 1
            if not self._cuts[link]:
                self._cluster.network.heal(*link, is_reset=fault.is_reset)
        self._end.get(fault.kind, _nothing)(fault)

    # Links

    def _links(self, fault: ChaosFault) -> Iterator[tuple[str, str]]:
        """Yield the directions that a fault cuts."""
        node = broker_node(fault.broker)
        members = {etcd_node(member) for member in range(len(self._cluster.etcd.members))}
        match fault.kind:
            case FaultKind.CUT_BROKERS | FaultKind.CUT_BROKERS_ONE_WAY:
                others = {broker_node(fault.other)}
            case FaultKind.CUT_ETCD | FaultKind.CUT_ETCD_ONE_WAY:
                others = members
            case FaultKind.CUT_ETCD_MEMBER:
                others = {etcd_node(fault.other)}
            case FaultKind.ISOLATE | FaultKind.ISOLATE_ONE_WAY:
                others = members | {broker_node(number) for number in NODES} | {CLIENT}
            case _:
                return
        for source, target in links_between({node}, others):
            if fault.kind not in ONE_WAY or (source == node) == fault.is_outgoing:
                yield source, target

    # Brokers

    def _kill_all(self, _: ChaosFault) -> None:
        for number in NODES:
            self._cluster.kill(number)

    def _start_all(self, _: ChaosFault) -> None:
        for number in self._rng.sample(NODES, len(NODES)):
            self._cluster.start(number)

    def _restart_all(self, _: ChaosFault) -> None:
        for number in self._rng.sample(NODES, len(NODES)):
            self._cluster.stop(number)
            self._cluster.start(number)
            self._health.wait()

    def _replace_disk(self, fault: ChaosFault) -> None:
        self._cluster.kill(fault.broker)
        self._cluster.replace_disk(fault.broker)

    # etcd

    def _etcd_leader(self, fault: ChaosFault) -> int:
        """Choose the leader, or any other member if there is none or another fault has stopped it."""
        stopped = set(self._members.values())
        leader = self._cluster.etcd_admin.leader()
        running = [member for member in range(len(self._cluster.etcd.members)) if member not in stopped]
        self._members[fault] = member = leader if leader in running and leader is not None else running[0]
        return member

    def _kill_etcd_leader(self, fault: ChaosFault) -> None:
        member = self._etcd_leader(fault)
        self._cluster.etcd.members[member].kill()
        self._cluster.network.refuse(etcd_node(member))

    def _start_etcd_member(self, fault: ChaosFault) -> None:
        self._cluster.etcd.members[self._members.pop(fault)].begin_start()

    def _pause_etcd_leader(self, fault: ChaosFault) -> None:
        self._cluster.etcd.members[self._etcd_leader(fault)].pause()

    def _resume_etcd_member(self, fault: ChaosFault) -> None:
        self._cluster.etcd.members[self._members.pop(fault)].resume()

    def _move_etcd_leader(self, _: ChaosFault) -> None:
        leader = self._cluster.etcd_admin.leader()
        if leader is not None:
            others = [member for member in range(len(self._cluster.etcd.members)) if member != leader]
            self._cluster.etcd_admin.move_leader(leader, self._rng.choice(others))

    # Partitions

    def _move_away(self, fault: ChaosFault) -> None:
        """Remove the replicas of a broker. Refused requests are not repeated: the cluster may be unable to."""
        self._reassign([number for number in NODES if number != fault.broker])

    def _move_back(self, _: ChaosFault) -> None:
        replicas = self._rng.sample(NODES, len(NODES))
        if not wait_until(lambda: self._reassign(replicas), _MOVED_BACK_S_MAX, _RETRY_S):
            raise TimeoutError(f"partitions could not be moved to {replicas} within {_MOVED_BACK_S_MAX:.0f} s")

    def _reassign(self, replicas: list[int]) -> bool:
        """Return True if a broker has accepted it for all partitions."""
        wanted = [
            ReassignablePartition(partition_index=number, replicas=replicas) for number in range(self._partitions)
        ]
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=TOPIC, partitions=wanted)], timeout_ms=int(_REQUEST_S * 1000)
        )
        for client in self._clients():
            with client, suppress(ClientError, ProtocolError):
                answer = client.request(request, AlterPartitionReassignmentsResponse)
                results = [result for topic in answer.responses for result in topic.partitions]
                if answer.error_code == 0 and all(result.error_code == 0 for result in results):
                    return True
        return False

    def _elect(self, _: ChaosFault) -> None:
        """Make the first replica of each partition its leader. Partitions whose leader it is are refused."""
        partitions = [TopicPartitions(topic=TOPIC, partitions=list(range(self._partitions)))]
        request = ElectLeadersRequest(topic_partitions=partitions, timeout_ms=int(_REQUEST_S * 1000))
        for client in self._clients():
            with client, suppress(ClientError, ProtocolError):
                client.request(request, ElectLeadersResponse)
                return

    def _clients(self) -> Iterator[Client]:
        """Yield a client of each broker, in any order."""
        for number in self._rng.sample(NODES, len(NODES)):
            yield Client(self._cluster.addresses[number], timeout_s=_REQUEST_S, client_id="chaos")


def _nothing(_: ChaosFault) -> None:
    pass
