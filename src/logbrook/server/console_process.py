"""The web console beside the broker: a process of its own, so that pages never make the broker's loop wait.

It ends with the broker, however that ends: it reads its standard input, which the broker keeps open and never writes
to. A console that ends by itself is told of in the log, and the broker goes on without it.
"""

import asyncio
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from importlib.util import find_spec

from logbrook.config.console import TOKEN_VARIABLE, is_loopback
from logbrook.config.values import split_address
from logbrook.model import LogbrookError

_STOP_S_MAX = 8.0
_ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}

_logger = logging.getLogger(__name__)


class ConsoleRefusedError(LogbrookError):
    """A console that could not or should not be run."""


class ConsoleProcess:
    """`listen` is HOST:PORT, or empty for no console, which has nothing to start and nothing to stop."""

    def __init__(self, listen: str, environment: Mapping[str, str]) -> None:
        """Raises ConsoleRefusedError, so that it is known before the broker starts."""
        self._listen = listen
        self._process: Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._is_stopping = False
        if not listen:
            return
        if find_spec("nicegui") is None:
            raise ConsoleRefusedError("the console is not installed: pip install 'logbrook[console]'")
        host, _ = split_address(listen)
        if not is_loopback(host) and not environment.get(TOKEN_VARIABLE):
            raise ConsoleRefusedError(
                f"others than this machine could ask the console at {listen}: set {TOKEN_VARIABLE}, or let it listen "
                "on 127.0.0.1"
            )

    async def start(self, broker: tuple[str, int], metrics: tuple[str, int] | None) -> None:
        if not self._listen:
            return
        command = [sys.executable, "-m", "logbrook", "console", "--with-parent", "--listen", self._listen]
        command += ["--bootstrap", _reachable(*broker)]
        # Without its own there is none to be asked: the usual port may be another broker's.
        command += ["--metrics", "" if metrics is None else _reachable(*metrics)]
        # A signal from the terminal is the broker's to pass on.
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=sys.stderr, start_new_session=True
        )
        self._watch = asyncio.get_running_loop().create_task(self._tell_of_its_end(self._process))

    async def stop(self) -> None:
        """Returns when it has ended."""
        self._is_stopping = True
        if self._process is None or self._watch is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(asyncio.shield(self._watch), _STOP_S_MAX)
        except TimeoutError:
            self._process.kill()
            await self._watch

    async def _tell_of_its_end(self, process: Process) -> None:
        code = await process.wait()
        if not self._is_stopping:
            _logger.warning("the console has ended with exit code %d; the broker goes on without it", code)


def _reachable(host: str, port: int) -> str:
    host = _ANY_HOST.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
