"""A server of Google Cloud Storage's protocols: fake-gcs-server, built with Go into the user's cache.

A gateway in front of it adds the uploads of the XML protocol.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from logbrook.testing.processes import ChildProcess, free_port, working_directory
from tests.interop.java.download_cache import cache_directory, fetch, key_of, locked
from tests.object_store.google_gateway import running_gateway
from tests.object_store.server_process import wait_for_server

MODULE = "github.com/fsouza/fake-gcs-server@v1.56.1"
BUCKET = "lake"


@dataclass(frozen=True)
class GoogleServer:
    """A running server with an empty bucket."""

    address: str
    directory: str

    def location(self, name: str) -> str:
        return f"gs://{BUCKET}/{name}"

    def options(self, address: str | None = None) -> dict[str, str]:
        return {"storage.google_service_account_key": _account(address or self.address), "storage.allow_http": "true"}

    def hadoop_options(self) -> dict[str, str]:
        path = Path(self.directory, "account.json")
        path.write_text(_account(self.address))
        return {"fs.gs.auth.service.account.json.keyfile": str(path), "storage.allow_http": "true"}


@contextmanager
def running_google() -> Iterator[GoogleServer]:
    """Run a server for the duration of the block. Raises MissingToolError."""
    program = _built()
    port = free_port()
    with working_directory("gcs") as (directory, reaper):
        address = f"127.0.0.1:{port}"
        os.makedirs(os.path.join(directory, "data", BUCKET))
        process = ChildProcess(os.path.join(directory, "log"), reaper)
        options = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", address]
        process.launch([program, "-backend", "memory", "-data", os.path.join(directory, "data"), *options])
        try:
            wait_for_server(process, address)
            with running_gateway(address) as gateway:
                yield GoogleServer(gateway, directory)
        finally:
            process.end()


def _built() -> str:
    directory = cache_directory("fake-gcs-server")
    program = directory / key_of(MODULE)
    with locked(directory):
        if not program.exists():
            draft = Path(f"{program}.new")
            shutil.rmtree(draft, ignore_errors=True)
            fetch(["env", f"GOBIN={draft}", "CGO_ENABLED=0", "go", "install", MODULE], directory)
            (draft / "fake-gcs-server").replace(program)
    return str(program)


def _account(address: str) -> str:
    """Return a service account as JSON, for a server that does not ask who its client is."""
    fields = {"gcs_base_url": f"http://{address}", "disable_oauth": True}
    return json.dumps({**fields, "client_email": "", "private_key": "", "private_key_id": ""})
