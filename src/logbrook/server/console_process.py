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

from logbrook.config import BrokerConfig
from logbrook.config.network import TOKEN_VARIABLE, is_loopback, split_address
from logbrook.model import LogbrookError
from logbrook.model.event_log import event_logger
from logbrook.model.security import SaslMechanism, SecurityProtocol
from logbrook.model.version import install_command

_STOP_S_MAX = 8.0
_PASSWORD_MECHANISMS = (SaslMechanism.SCRAM_SHA_512, SaslMechanism.SCRAM_SHA_256, SaslMechanism.PLAIN)
_ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}

_logger = event_logger(__name__)


class ConsoleRefusedError(LogbrookError):
    """The console is not installed, or its configuration is not safe."""


class ConsoleProcess:
    """The console's process. If `console.listen` of the settings is empty, there is no console."""

    def __init__(self, config: BrokerConfig, environment: Mapping[str, str]) -> None:
        """Raises ConsoleRefusedError, before the broker starts."""
        self._config = config
        self._listen = listen = config.console.listen
        self._process: Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._is_stopping = False
        if not listen:
            return
        if find_spec("nicegui") is None:
            raise ConsoleRefusedError(f"the console is not installed: {install_command('console')}")
        host, _ = split_address(listen)
        self._has_login = config.security.protocol.uses_sasl and not environment.get(TOKEN_VARIABLE)
        if config.console.tls and config.security.key_password_file:
            raise ConsoleRefusedError("console.tls needs a key without a password; serve HTTPS by a proxy instead")
        if not is_loopback(host) and not environment.get(TOKEN_VARIABLE) and not self._has_login:
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
        scheme = "https" if self._config.metrics.tls else "http"
        command += ["--metrics", "" if metrics is None else f"{scheme}://{_reachable(*metrics)}"]
        command += self._security_options()
        # In its own session, so that Ctrl-C reaches only the broker, which then stops the console.
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=sys.stderr, start_new_session=True
        )
        self._watch = asyncio.get_running_loop().create_task(self._log_exit(self._process))

    def _security_options(self) -> list[str]:
        console, security = self._config.console, self._config.security
        options = []
        if console.client_config:
            options += ["--client-config", console.client_config]
        if security.protocol is not SecurityProtocol.PLAINTEXT:
            options += ["-X", f"security.protocol={security.protocol}"]
        if self._has_login:
            mechanism = next((name for name in _PASSWORD_MECHANISMS if name in security.sasl_mechanisms), None)
            options += ["--login", *(() if mechanism is None else ("-X", f"sasl.mechanism={mechanism}"))]
        if console.url:
            options += ["--url", console.url]
        if console.tls:
            options += ["--certificate", security.certificate, "--key", security.key or security.certificate]
        return options

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
