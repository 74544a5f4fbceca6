"""Three nodes of Apache Kafka (KRaft), each broker and controller, with Kafka's defaults."""

import subprocess
from pathlib import Path

from bench.clusters.nodes import NODES, BenchCluster, directory_of
from bench.clusters.proxy import Proxies, Route
from bench.peers.kafka import JAVA_OPTIONS, classpath
from bench.peers.system import CommandServer
from logbrook.testing.processes import free_port

_HOST = "127.0.0.1"
# Any 16 bytes in URL-safe base64.
_CLUSTER_ID = "bG9nYnJvb2stYmVuY2gtMQ"
_FORMAT_S_MAX = 120.0


def kafka_cluster(directory: Path, *, with_proxies: bool = False) -> BenchCluster:
    """Return a cluster that is not launched yet, with formatted directories. Raises UnavailableError."""
    java = ["java", *JAVA_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classpath()]
    ports = {node: free_port() for node in NODES}
    controller_ports = {node: free_port() for node in NODES}
    proxied = {node: free_port() for node in NODES} if with_proxies else ports
    proxied_controllers = {node: free_port() for node in NODES} if with_proxies else controller_ports
    routes = [Route(node, proxied[node], ports[node]) for node in NODES]
    routes += [Route(node, proxied_controllers[node], controller_ports[node]) for node in NODES]
    voters = ",".join(f"{node}@{_HOST}:{port}" for node, port in proxied_controllers.items())
    nodes = {}
    for node in NODES:
        home = directory_of(directory, f"node-{node}")
        properties = home / "server.properties"
        address, controller = f"{_HOST}:{ports[node]}", f"{_HOST}:{controller_ports[node]}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": voters,
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
        proxies=Proxies(routes) if with_proxies else None,
    )


def _format(java: list[str], properties: Path) -> None:
    command = [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_FORMAT_S_MAX, check=False
    )
    if done.returncode:
        raise RuntimeError(f"Kafka could not format a directory: {done.stdout[-500:]}{done.stderr[-500:]}")
