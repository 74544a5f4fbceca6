"""Three `logbrook serve --cluster` and an etcd of one member, with its syncs."""

import sys
from pathlib import Path

from bench.clusters.network import ClusterNetwork
from bench.clusters.nodes import NODES, BenchCluster, directory_of
from bench.peers.system import CommandServer, UnavailableError
from logbrook.testing.etcd import find_etcd
from logbrook.testing.processes import free_port

_HOST = "127.0.0.1"


def etcd_command() -> str:
    """Return the path of etcd. Raises UnavailableError."""
    command = find_etcd()
    if command is None:
        raise UnavailableError("there is no etcd: run `make etcd`")
    return command


def logbrook_cluster(
    directory: Path, durability: str = "fsync", *, network: ClusterNetwork | None = None
) -> BenchCluster:
    """Return a cluster that is not launched yet. `directory` is empty. Raises UnavailableError."""
    etcd_port, peer_port = free_port(), free_port()
    ports = {node: free_port() for node in NODES}
    proxied, etcd_ports = ports, dict.fromkeys(NODES, etcd_port)
    if network is not None:
        proxied = {node: network.port_of(node, ports[node]) for node in NODES}
        etcd_ports = {node: network.store_port_of(node, etcd_port) for node in NODES}
    nodes = {}
    for node in NODES:
        home = directory_of(directory, f"node-{node}")
        command = [sys.executable, "-m", "logbrook", "serve", "--node", str(node)]
        command += ["--cluster", f"{_HOST}:{etcd_ports[node]}/bench", "--data", str(home / "data")]
        command += ["--listen", f"{_HOST}:{ports[node]}", "--advertise", f"{_HOST}:{proxied[node]}"]
        command += ["--metrics", f"{_HOST}:{free_port()}", "--durability", durability]
        nodes[node] = CommandServer(command, home, f"{_HOST}:{proxied[node]}")
    return BenchCluster(
        nodes,
        {node: server.address for node, server in nodes.items()},
        store=_etcd(directory_of(directory, "etcd"), etcd_port, peer_port),
        network=network,
    )


def _etcd(directory: Path, port: int, peer_port: int) -> CommandServer:
    client, peer = f"http://{_HOST}:{port}", f"http://{_HOST}:{peer_port}"
    command = [
        etcd_command(),
        f"--data-dir={directory / 'data'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--log-level=error",
    ]
    return CommandServer(command, directory, f"{_HOST}:{port}")
