"""The recipes of docs/SPARK.md for Kubernetes, as far as they go without one: the driver's pod that they ask for.

A server takes spark-submit's requests and keeps the objects. Nothing runs in the pod, so this proves the options only.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pyspark
import pytest

from tests.spark.limits import PROCESS_S_MAX

pytestmark = pytest.mark.long
SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
PYTHON = "./environment/bin/python"


class ApiServer(ThreadingHTTPServer):
    """Answers each request to create an object with the object, and keeps it by its kind."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _ApiHandler)
        self.objects: dict[str, list[dict[str, Any]]] = {}

    @contextmanager
    def running(self) -> Iterator[str]:
        thread = Thread(target=self.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"k8s://http://127.0.0.1:{self.server_port}"
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


class _ApiHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ApiServer

    def _create(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        document["metadata"].setdefault("uid", "00000000-0000-0000-0000-000000000000")
        self.server.objects.setdefault(document["kind"], []).append(document)
        self._answer(HTTPStatus.CREATED, document)

    def _find(self) -> None:
        self._answer(HTTPStatus.NOT_FOUND, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404})

    def _answer(self, status: HTTPStatus, document: Mapping[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_PUT = do_PATCH = _create  # noqa: N815 - http.server's names
    do_GET = do_DELETE = _find  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Write nothing to the test's output."""


def submit(directory: Path, *options: str) -> tuple[dict[str, Any], str]:
    """Return the container of the driver that spark-submit asks for, and the settings that it mounts."""
    server = ApiServer()
    with server.running() as master:
        base = [SUBMIT, "--master", master, "--deploy-mode", "cluster", "--name", "orders"]
        done = subprocess.run(
            [*base, "--conf", "spark.kubernetes.submission.waitAppCompletion=false", *options],
            cwd=directory,
            env={name: text for name, text in os.environ.items() if name not in {"PYTHONPATH", "PYSPARK_PYTHON"}},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROCESS_S_MAX,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    (pod,) = server.objects["Pod"]
    (container,) = pod["spec"]["containers"]
    settings = [entry for entry in server.objects["ConfigMap"] if "spark.properties" in entry["data"]]
    return container, settings[0]["data"]["spark.properties"]


def environment_of(container: Mapping[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}


def test_the_driver_of_an_own_image_runs_the_application_in_it(tmp_path: Path) -> None:
    container, _ = submit(
        tmp_path, "--conf", "spark.kubernetes.container.image=registry/orders:1", "local:///opt/app.py"
    )
    assert container["image"] == "registry/orders:1"
    assert container["args"][0] == "driver"
    assert container["args"][-1] == "local:///opt/app.py"


def test_the_driver_of_a_packed_environment_uses_its_python(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("")
    (tmp_path / "environment.tar.gz").write_bytes(b"packed")
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    container, settings = submit(
        tmp_path,
        *("--archives", "environment.tar.gz#environment"),
        *("--conf", "spark.kubernetes.container.image=apache/spark:4.3.0-python3"),
        # A bucket in the recipe.
        *("--conf", f"spark.kubernetes.file.upload.path=file://{uploads}"),
        *("--conf", f"spark.kubernetes.driverEnv.PYSPARK_PYTHON={PYTHON}"),
        *("--conf", f"spark.executorEnv.PYSPARK_PYTHON={PYTHON}"),
        "app.py",
    )
    assert environment_of(container)["PYSPARK_PYTHON"] == PYTHON
    assert {path.name for path in uploads.rglob("*") if path.is_file() and path.suffix != ".crc"} == {
        "app.py",
        "environment.tar.gz",
    }
    assert container["args"][-1].endswith("/app.py")
    # Java escapes colons and number signs in a file of properties.
    lines = dict(line.split("=", 1) for line in settings.replace("\\", "").splitlines() if "=" in line)
    assert lines["spark.archives"].endswith("/environment.tar.gz#environment")
    assert lines["spark.executorEnv.PYSPARK_PYTHON"] == PYTHON
