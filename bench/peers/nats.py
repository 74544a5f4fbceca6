"""NATS JetStream with file storage, from the system's packages."""

import importlib.util
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from bench.peers.system import CommandServer, Promise, Server, System, UnavailableError, Variant, free_address
from logbrook.model.version import install_command

_HOW = "install it, for example with apt-get install nats-server"


class Nats(System):
    name = "NATS JetStream"
    load = "nats"
    load_processes = 2

    def version(self) -> str:
        if shutil.which("nats-server") is None:
            raise UnavailableError(f"nats-server is not installed: {_HOW}")
        if importlib.util.find_spec("nats") is None:
            raise UnavailableError(f"its client is not installed: {install_command('bench')}")
        output = subprocess.run(["nats-server", "--version"], capture_output=True, text=True, check=True).stdout
        return output.split()[-1].removeprefix("v")

    def variants(self) -> dict[Promise, Variant]:
        default = Variant(
            Promise.LESS,
            "its defaults",
            "in the page cache; synced periodically (survives SIGKILL)",
            is_default=True,
        )
        synced = Variant(Promise.DISK, "`sync_interval: always`", "in a synced file")
        return {Promise.LESS: default, Promise.DISK: synced} if _can_sync() else {Promise.LESS: default}

    def server(self, variant: Variant, directory: Path) -> Server:
        address = free_address()
        config = directory / "nats.conf"
        config.write_text(_config(directory / "data", address, is_synced=variant.promise is Promise.DISK))
        return CommandServer(["nats-server", "--config", str(config)], directory, address)


def _config(store: Path, address: str, *, is_synced: bool) -> str:
    sync = ", sync_interval: always" if is_synced else ""
    return f'listen: "{address}"\njetstream {{ store_dir: "{store}"{sync} }}\n'


@cache
def _can_sync() -> bool:
    """Return True if the server accepts `sync_interval: always`; version 2.9 rejects it."""
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory, "nats.conf")
        config.write_text(_config(Path(directory), "127.0.0.1:4222", is_synced=True))
        checked = subprocess.run(["nats-server", "--config", str(config), "-t"], capture_output=True, check=False)
    return checked.returncode == 0
