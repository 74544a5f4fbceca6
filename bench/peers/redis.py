"""Redis Streams, from the system's packages."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

from bench.peers.system import CommandServer, Promise, Server, System, UnavailableError, Variant, free_address
from logbrook.model.version import install_command

_HOW = "install it, for example with apt-get install redis-server"


class Redis(System):
    name = "Redis Streams"
    load = "redis"

    def version(self) -> str:
        for command in ("redis-server", "redis-benchmark"):
            if shutil.which(command) is None:
                raise UnavailableError(f"{command} is not installed: {_HOW}")
        if importlib.util.find_spec("redis") is None:
            raise UnavailableError(f"its client is not installed: {install_command('bench')}")
        output = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout
        return output.partition("v=")[2].split()[0]

    def variants(self) -> dict[Promise, Variant]:
        return {
            Promise.DISK: Variant(
                Promise.DISK,
                "`appendonly yes`, `appendfsync always`",
                "in a synced append-only file; one sync covers all requests of an event-loop turn",
            ),
            Promise.LESS: Variant(
                Promise.LESS,
                "its defaults",
                "in the server's memory; periodic snapshots (does not survive SIGKILL)",
                is_default=True,
                survives_kill=False,
            ),
        }

    def server(self, variant: Variant, directory: Path) -> Server:
        address = free_address()
        host, _, port = address.rpartition(":")
        command = ["redis-server", "--bind", host, "--port", port, "--dir", str(directory)]
        if variant.promise is Promise.DISK:
            command += ["--appendonly", "yes", "--appendfsync", "always"]
        return CommandServer(command, directory, address)
