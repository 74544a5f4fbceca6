"""Redis with its streams, from the system's packages."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

from bench.peers.ports import free_address
from bench.peers.system import CommandServer, Promise, Server, System, UnavailableError, Variant

_HOW = "apt-get install redis-server, or the like on other systems"


class Redis(System):
    name = "Redis Streams"
    load = "redis"

    def version(self) -> str:
        for command in ("redis-server", "redis-benchmark"):
            if shutil.which(command) is None:
                raise UnavailableError(f"there is no {command} on this machine: {_HOW}")
        if importlib.util.find_spec("redis") is None:
            raise UnavailableError("its client is not installed: pip install 'logbrook[bench]'")
        said = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout
        return said.partition("v=")[2].split()[0]

    def variants(self) -> dict[Promise, Variant]:
        return {
            Promise.DISK: Variant(
                Promise.DISK,
                "`appendonly yes`, `appendfsync always`",
                "in a log that was synced; one sync serves all that came at once",
            ),
            Promise.LESS: Variant(
                Promise.LESS,
                "its defaults",
                "in the server's memory; a snapshot now and then (does not survive SIGKILL)",
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
