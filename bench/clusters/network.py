"""The network of a cluster, of which a node can be cut off: the proxy of the chaos tests (`logbrook.testing.chaos`).

Every connection between the nodes, from clients, and to etcd goes through the proxy. It knows who connects by the
client id, which begins with `broker-N` in Logbrook and in Kafka's replication, or by the port: etcd and Kafka's
controllers are given to each node at ports of its own.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from logbrook.testing.chaos.network import CLIENT, ChaosNetwork, links_between

_STORE = "etcd-1"


class ClusterNetwork:
    """`with ClusterNetwork(nodes) as network:`. Ports are asked for before the nodes are launched."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self._nodes = {node: f"broker-{node}" for node in nodes}
        self._proxy = ChaosNetwork()
        self._cuts: list[tuple[str, str]] = []

    def __enter__(self) -> Self:
        self._proxy.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._proxy.__exit__(kind, error, at)

    def port_of(self, node: int, to_port: int, source: int | None = None) -> int:
        """Return a port that forwards to `to_port` of a node; only `source` uses it, if that is given."""
        return self._proxy.listen(self._nodes[node], to_port, "" if source is None else self._nodes[source])

    def store_port_of(self, source: int, to_port: int) -> int:
        """Return a port by which one node reaches the metadata store."""
        return self._proxy.listen(_STORE, to_port, self._nodes[source])

    def cut(self, node: int) -> None:
        """Hold everything from and to a node, as if packets were dropped: connections stay open."""
        name = self._nodes[node]
        self._cuts = list(links_between({name}, {*self._nodes.values(), CLIENT, _STORE}))
        for source, target in self._cuts:
            self._proxy.cut(source, target)

    def heal(self) -> None:
        """End the cut. What was sent meanwhile arrives, as it would by TCP's retransmissions."""
        for source, target in self._cuts:
            self._proxy.heal(source, target)
        self._cuts = []
