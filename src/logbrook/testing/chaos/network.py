"""The network of a chaos test: every connection between brokers, to etcd and from clients goes through one proxy."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from logbrook.testing.chaos.proxy import CLIENT
from logbrook.testing.processes import free_port

_SCRIPT = Path(__file__).with_name("proxy.py")
_EXIT_TIMEOUT_S = 10


class ChaosNetwork:
    """The handle of the proxy's process, which ends with this one. Used by one thread.

    A node is `broker-N`, `etcd-N` or CLIENT. A broker's client id is its name, by which the proxy knows who connects.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            try:
                self._process.wait(_EXIT_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()
            self._process = None

    def listen(self, node: str, to_port: int, source: str = "") -> int:
        """Return a port that forwards to `to_port` of a node. `source` is the only node that uses it, if it is known.

        It refuses connections until the node listens.
        """
        port = free_port()
        self._command("listen", node=node, source=source, port=port, to_port=to_port)
        return port

    def refuse(self, node: str) -> None:
        """The process of a node has ended: refuse connections until it listens again."""
        self._command("refuse", node=node)

    def cut(self, source: str, target: str) -> None:
        """Hold what `source` sends to `target`."""
        self._command("cut", source=source, target=target)

    def heal(self, source: str, target: str, *, is_reset: bool = False) -> None:
        """Forward what was held, and all that follows; or break the connections between the two nodes."""
        self._command("heal", source=source, target=target, is_reset=is_reset)

    def _command(self, name: str, **arguments: object) -> None:
        """Raises RuntimeError if the proxy has ended."""
        assert self._process is not None, "it is started"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": name, **arguments}) + "\n")
        self._process.stdin.flush()
        if not self._process.stdout.readline():
            raise RuntimeError("the proxy of the chaos test has ended")


def links_between(nodes: set[str], others: set[str]) -> Iterator[tuple[str, str]]:
    """Yield both directions between two groups of nodes."""
    for node in sorted(nodes):
        for other in sorted(others - nodes):
            yield node, other
            yield other, node


__all__ = ["CLIENT", "ChaosNetwork", "links_between"]
