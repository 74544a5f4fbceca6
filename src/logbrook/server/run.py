"""`logbrook serve`: a broker in the foreground, from start to the signal that stops it.

The first SIGTERM or SIGINT stops it properly: what was accepted is answered and everything is made durable. A second
one stops it at once, which loses nothing that was acknowledged; the next start has more to recover.
"""

import asyncio
import errno
import logging
import os
import signal
import sys

import uvloop

from logbrook.config import BrokerConfig
from logbrook.model import LogbrookError
from logbrook.model.version import VERSION
from logbrook.server.broker import BrokerServer
from logbrook.server.console_process import ConsoleProcess
from logbrook.server.logs import configure_logging

# The committer's thread waits for the interpreter after each system call; by default for up to 5 ms.
_SWITCH_INTERVAL_S = 0.0005

_logger = logging.getLogger(__name__)


def run(config: BrokerConfig) -> int:
    """Serve until a signal comes. Returns the exit code."""
    configure_logging(config.logging, sys.stderr)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    return uvloop.run(_serve(config))


async def _serve(config: BrokerConfig) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop(name: str) -> None:
        if stopping.is_set():
            _logger.warning("stopping at once")
            logging.shutdown()
            os._exit(128 + signal.Signals[name])
        _logger.info("stopping on %s; once more stops at once", name)
        stopping.set()

    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, stop, one.name)
    started_s = loop.time()
    server = BrokerServer(config)
    try:
        console = ConsoleProcess(config.console.listen, os.environ)
        await server.start()
    except LogbrookError as error:
        _logger.critical("cannot start: %s", error)
        return 1
    except OSError as error:
        _logger.critical("cannot start: %s", _explain(error, config))
        return 1
    host, port = server.address
    _logger.info(
        "Logbrook %s listens on %s:%d, with %d topics in %s, durability %s, after %d ms",
        VERSION,
        host,
        port,
        len(server.services.topics.metadata),
        os.path.abspath(config.data),
        config.storage.durability.value,
        round(1000 * (loop.time() - started_s)),
    )
    if server.json_address is not None:
        _logger.info("the JSON protocol is spoken on %s:%d", *server.json_address)
    await console.start(server.address, server.http_address)
    await stopping.wait()
    try:
        await console.stop()
        await server.stop()
    except LogbrookError as error:
        _logger.critical("the stop was not clean: %s", error)
        return 1
    _logger.info("stopped")
    return 0


def _explain(error: OSError, config: BrokerConfig) -> str:
    if error.errno == errno.EADDRINUSE:
        address = error.filename or config.network.listen
        return (
            f"{address} is in use; stop what listens there, or choose another with --listen, --metrics or --json-port"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{error.strerror}: {error.filename or config.network.listen}"
    return str(error)
