"""A server of Amazon's S3 protocol with atomic conditional puts: MinIO if it is installed, else moto's.

MinIO is built from source in minutes, too long for a test run: `python -m tests.object_store.s3_server` builds it once
and keeps it in the user's cache. moto's server is a Python package; it runs with one thread here, because it checks the
condition of a put and stores the object in two steps.
"""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from logbrook.testing.processes import ChildProcess, free_port, working_directory
from tests.interop.java.download_cache import MissingToolError, cache_directory, fetch, key_of
from tests.object_store.server_process import wait_for_server

MODULE = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"
BUCKET = "lake"
_MOTO = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

make_server("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app)).serve_forever()
"""


@dataclass(frozen=True)
class S3Server:
    """A running server with an empty bucket."""

    address: str
    user: str = "logbrook"
    password: str = "logbrook-secret"

    def location(self, name: str) -> str:
        return f"s3://{BUCKET}/{name}"

    def hadoop_options(self) -> dict[str, str]:
        return {
            "fs.s3a.endpoint": self.address,
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.access.key": self.user,
            "fs.s3a.secret.key": self.password,
        }

    def options(self, address: str | None = None) -> dict[str, str]:
        return {
            "storage.aws_endpoint": f"http://{address or self.address}",
            "storage.aws_access_key_id": self.user,
            "storage.aws_secret_access_key": self.password,
        }


@contextmanager
def running_s3() -> Iterator[S3Server]:
    """Run a server for the duration of the block. Raises MissingToolError."""
    port = free_port()
    server = S3Server(f"127.0.0.1:{port}")
    with working_directory("s3") as (directory, reaper):
        process = ChildProcess(os.path.join(directory, "log"), reaper)
        environment = {
            **os.environ,
            "HOME": directory,
            "MINIO_ROOT_USER": server.user,
            "MINIO_ROOT_PASSWORD": server.password,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
        }
        process.launch(_command(directory, port), env=environment)
        try:
            wait_for_server(process, server.address)
            _create_bucket(server)
            yield server
        finally:
            process.end()


def build_minio() -> str:
    """Build MinIO into the user's cache and return its path. Raises MissingToolError."""
    directory = cache_directory("minio")
    draft = Path(f"{_built_minio()}.new")
    shutil.rmtree(draft, ignore_errors=True)
    fetch(["env", f"GOBIN={draft}", "CGO_ENABLED=0", "go", "install", MODULE], directory)
    (draft / "minio").replace(_built_minio())
    return str(_built_minio())


def _built_minio() -> Path:
    return cache_directory("minio") / key_of(MODULE)


def _command(directory: str, port: int) -> list[str]:
    minio = shutil.which("minio") or (str(_built_minio()) if _built_minio().exists() else None)
    if minio is not None:
        data = os.path.join(directory, "data")
        os.mkdir(data)
        return [minio, "server", data, "--quiet", "--address", f"127.0.0.1:{port}"]
    if importlib.util.find_spec("moto") is not None and importlib.util.find_spec("flask_cors") is not None:
        return [sys.executable, "-c", _MOTO, str(port)]
    raise MissingToolError("neither minio nor moto is installed; `python -m tests.object_store.s3_server` builds MinIO")


def _create_bucket(server: S3Server) -> None:
    from pyarrow.fs import S3FileSystem  # noqa: PLC0415 - it starts threads

    S3FileSystem(
        access_key=server.user,
        secret_key=server.password,
        endpoint_override=f"http://{server.address}",
        region="us-east-1",
        allow_bucket_creation=True,
    ).create_dir(BUCKET)


if __name__ == "__main__":
    print(build_minio())  # noqa: T201 - the result of the command
