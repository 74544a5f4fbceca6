"""The web console as a child process, so that it never blocks the broker's event loop.

The console exits when its standard input reaches its end. The broker holds the other end of that pipe and never writes,
so the console ends with the broker. If the broker is killed, the kernel also kills the console (`end_with_parent`). If
the console exits by itself, the broker logs it and continues.
"""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from importlib.util import find_spec

from logbrook.config.network import TOKEN_VARIABLE, is_loopback, split_address
from logbrook.model import LogbrookError
from logbrook.model.event_log import event_logger
from logbrook.model.version import install_command

_STOP_S_MAX = 8.0
_ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}

_logger = event_logger(__name__)


class ConsoleRefusedError(LogbrookError):
    """The console is not installed, or its configuration is not safe."""


class ConsoleProcess:
    """The console's process. `listen` is HOST:PORT; if it is empty, there is no console."""

    def __init__(self, listen: str, environment: Mapping[str, str]) -> None:
        """Raises ConsoleRefusedError, before the broker starts."""
        self._listen = listen
        self._process: Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._is_stopping = False
        if not listen:
            return
        if find_spec("nicegui") is None:
            raise ConsoleRefusedError(f"the console is not installed: {install_command('console')}")
        host, _ = split_address(listen)
        if not is_loopback(host) and not environment.get(TOKEN_VARIABLE):
            raise ConsoleRefusedError(
                f"the console at {listen} could be reached from other machines: set {TOKEN_VARIABLE} to a password, or "
                "listen on 127.0.0.1"
            )

    async def start(self, broker: tuple[str, int], metrics: tuple[str, int] | None) -> None:
        if not self._listen:
            return
        command = [sys.executable, "-m", "logbrook", "console", "--with-parent", "--listen", self._listen]
        command += ["--bootstrap", _reachable(*broker)]
        # Empty if this broker has no HTTP listener: the default port may belong to another broker.
        command += ["--metrics", "" if metrics is None else _reachable(*metrics)]
        # In its own session, so that Ctrl-C reaches only the broker, which then stops the console.
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=sys.stderr, start_new_session=True
        )
        self._watch = asyncio.get_running_loop().create_task(self._log_exit(self._process))

    async def stop(self) -> None:
        """Close the console's input, and return when it has exited."""
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

    async def _log_exit(self, process: Process) -> None:
        code = await process.wait()
        if not self._is_stopping:
            _logger.warning("console process exited", exit_code=code)


def _reachable(host: str, port: int) -> str:
    host = _ANY_HOST.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
