"""Three nodes of Apache Kafka (KRaft), each broker and controller, with Kafka's defaults."""

import subprocess
from pathlib import Path

from bench.clusters.network import ClusterNetwork
from bench.clusters.nodes import NODES, BenchCluster, directory_of
from bench.peers.kafka import JAVA_OPTIONS, classpath
from bench.peers.system import CommandServer
from logbrook.testing.processes import free_port

_HOST = "127.0.0.1"
# Any 16 bytes in URL-safe base64.
_CLUSTER_ID = "bG9nYnJvb2stYmVuY2gtMQ"
_FORMAT_S_MAX = 120.0


def kafka_cluster(directory: Path, *, network: ClusterNetwork | None = None) -> BenchCluster:
    """Return a cluster that is not launched yet, with formatted directories. Raises UnavailableError."""
    java = ["java", *JAVA_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classpath()]
    ports = {node: free_port() for node in NODES}
    controller_ports = {node: free_port() for node in NODES}
    proxied = ports if network is None else {node: network.port_of(node, ports[node]) for node in NODES}
    nodes = {}
    for node in NODES:
        home = directory_of(directory, f"node-{node}")
        properties = home / "server.properties"
        address, controller = f"{_HOST}:{ports[node]}", f"{_HOST}:{controller_ports[node]}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": _voters(node, controller_ports, network),
            "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{_HOST}:{proxied[node]}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(home / "data"),
            "auto.create.topics.enable": "false",
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        _format(java, properties)
        nodes[node] = CommandServer([*java, "kafka.Kafka", str(properties)], home, f"{_HOST}:{proxied[node]}")
    return BenchCluster(
        nodes,
        {node: server.address for node, server in nodes.items()},
        network=network,
    )


def _voters(node: int, ports: dict[int, int], network: ClusterNetwork | None) -> str:
    """Return the controllers as a node sees them: through a network, at ports that only this node uses."""
    seen = {voter: port if network is None else network.port_of(voter, port, node) for voter, port in ports.items()}
    return ",".join(f"{voter}@{_HOST}:{port}" for voter, port in seen.items())


def _format(java: list[str], properties: Path) -> None:
    command = [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_FORMAT_S_MAX, check=False
    )
    if done.returncode:
        raise RuntimeError(f"Kafka could not format a directory: {done.stdout[-500:]}{done.stderr[-500:]}")
