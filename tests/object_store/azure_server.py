"""A server of Azure's blob protocol: Azurite, Microsoft's emulator, fetched with npm into the user's cache."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from logbrook.testing.processes import ChildProcess, free_port, working_directory
from tests.interop.java.download_cache import MissingToolError, cache_directory, fetch, key_of, locked
from tests.object_store.server_process import wait_for_server

PACKAGE = "azurite@3.37.0"
ACCOUNT = "devstoreaccount1"
# The key of Azurite's only account; it is in Microsoft's documentation.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CONTAINER = "lake"
HOST = f"{ACCOUNT}.dfs.core.windows.net"


@dataclass(frozen=True)
class AzureServer:
    """A running server with an empty container."""

    address: str

    def location(self, name: str) -> str:
        return f"abfss://{CONTAINER}@{HOST}/{name}"

    def options(self, address: str | None = None) -> dict[str, str]:
        return {
            "storage.azure_storage_endpoint": f"http://{address or self.address}/{ACCOUNT}",
            "storage.azure_storage_account_key": KEY,
        }

    def hadoop_options(self) -> dict[str, str]:
        return {
            "storage.azure_storage_endpoint": f"http://{self.address}/{ACCOUNT}",
            f"fs.azure.account.key.{HOST}": KEY,
        }


@contextmanager
def running_azure() -> Iterator[AzureServer]:
    """Run a server for the duration of the block. Raises MissingToolError."""
    program = _installed() / "azurite" / "dist" / "src" / "blob" / "main.js"
    port = free_port()
    server = AzureServer(f"127.0.0.1:{port}")
    with working_directory("azurite") as (directory, reaper):
        process = ChildProcess(os.path.join(directory, "log"), reaper)
        # pyarrow's client is newer than the newest protocol version that Azurite knows.
        options = ["--location", directory, "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        process.launch(["node", str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port), *options])
        try:
            wait_for_server(process, server.address)
            _create_container(server)
            yield server
        finally:
            process.end()


def _installed() -> Path:
    """Return the directory `node_modules` with the package and its dependencies."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            raise MissingToolError(f"there is no {tool} on this machine")
    directory = cache_directory("azurite")
    installed = directory / key_of(PACKAGE)
    with locked(directory):
        if not installed.exists():
            new = Path(f"{installed}.new")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            # No package needs to be built, and install scripts are not run.
            fetch(["npm", "install", "--prefix", ".", "--ignore-scripts", "--no-audit", "--no-fund", PACKAGE], new)
            new.rename(installed)
    return installed / "node_modules"


def _create_container(server: AzureServer) -> None:
    from pyarrow.fs import AzureFileSystem  # noqa: PLC0415 - it starts threads

    AzureFileSystem(
        ACCOUNT,
        account_key=KEY,
        blob_storage_authority=server.address,
        dfs_storage_authority=server.address,
        blob_storage_scheme="http",
        dfs_storage_scheme="http",
    ).create_dir(CONTAINER)
