"""`logbrook serve`: run a broker in the foreground until a signal stops it.

The first SIGTERM or SIGINT stops it cleanly: accepted requests are answered and all data is synced. A second signal
exits immediately. That loses nothing that was acknowledged, but the next start has more to recover.
"""

import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import sys

import uvloop

from logbrook.config import BrokerConfig
from logbrook.model import LogbrookError
from logbrook.model.event_log import event_logger
from logbrook.model.version import VERSION
from logbrook.server.advertised import warn_of_open_listeners
from logbrook.server.broker import BrokerServer
from logbrook.server.cluster.etcd_link import open_link, wait_for_store
from logbrook.server.console_process import ConsoleProcess
from logbrook.server.logs import configure_logging

# The committer's thread has to reacquire the interpreter lock after each system call, by default after up to 5 ms.
_SWITCH_INTERVAL_S = 0.0005

_logger = event_logger(__name__)


def run(config: BrokerConfig) -> int:
    """Serve until a signal arrives. Return the exit code."""
    configure_logging(config.logging, sys.stderr)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    return uvloop.run(_serve(config))


async def _serve(config: BrokerConfig) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop(name: str) -> None:
        if stopping.is_set():
            _logger.warning("broker killed by second signal", signal=name)
            logging.shutdown()
            os._exit(128 + signal.Signals[name])
        _logger.info("broker stopping", signal=name)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    started_s = loop.time()
    try:
        link = open_link(config) if config.cluster.store else None
    except LogbrookError as error:
        _logger.critical("start failed", error=error)
        return 1
    if link is not None and not await wait_for_store(link.store, stopping):
        await link.store.close()
        return 0
    server = BrokerServer(config, on_many_logs_created=_freeze_objects, cluster=link)
    try:
        console = ConsoleProcess(config, os.environ)
        await server.start()
    except LogbrookError as error:
        _logger.critical("start failed", error=error)
        return 1
    except OSError as error:
        _logger.critical("start failed", error=_explain(error, config))
        return 1
    _freeze_objects()
    loop.add_signal_handler(signal.SIGHUP, server.reload)
    warn_of_open_listeners(config)
    host, port = server.address
    _logger.info(
        "broker started",
        version=VERSION,
        listen=f"{host}:{port}",
        data=" ".join(map(os.path.abspath, config.data_directories)),
        topics=len(server.services.topics.metadata),
        durability=config.storage.durability.value,
        start_ms=round(1000 * (loop.time() - started_s)),
    )
    if server.json_address is not None:
        host, port = server.json_address
        _logger.info("json listener started", listen=f"{host}:{port}")
    await console.start(server.address, server.http_address)
    await stopping.wait()
    try:
        await console.stop()
        await server.stop()
    except LogbrookError as error:
        _logger.critical("stop failed", error=error)
        return 1
    _logger.info("broker stopped")
    return 0


def _freeze_objects() -> None:
    """Exempt the existing objects from garbage collection: modules, logs and handlers live as long as the broker.

    A full collection would stop it for 20 ms to visit them, and for 50 ms to visit the logs of 10,000 partitions. Those
    of a deleted topic are freed nevertheless: they are not part of reference cycles.
    """
    gc.collect()
    gc.freeze()


def _explain(error: OSError, config: BrokerConfig) -> str:
    """Say in a sentence what could not be opened. `error.filename` is an address if it could not be bound."""
    subject = error.filename or config.network.listen
    if error.errno == errno.EADDRINUSE:
        return (
            f"{subject} is in use; stop the process that listens there, or choose another address with --listen, "
            "--metrics or --json-port"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return (
            f"{subject} is not an address of this machine; listen on one that it has, or on all with "
            "--listen 0.0.0.0:9092 --advertise HOST:PORT"
        )
    if isinstance(error, socket.gaierror):
        return f"the host of {subject} cannot be resolved: {error.strerror}"
    if error.errno in (errno.EEXIST, errno.ENOTDIR) and subject in map(os.path.abspath, config.data_directories):
        return f"{subject} is not a directory; --data takes the directory of the broker's data"
    return f"{error.strerror or error}: {subject}"
