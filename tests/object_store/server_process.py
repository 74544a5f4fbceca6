"""Wait until a server that a test has started answers HTTP requests."""

import http.client

from logbrook.testing.processes import ChildProcess, wait_until
from tests.interop.java.download_cache import MissingToolError

_START_S_MAX = 60.0


def wait_for_server(process: ChildProcess, address: str) -> None:
    """Return when the server answers. Raises MissingToolError if it ends or takes too long."""
    if not wait_until(lambda: _answers(address) or not process.is_running, _START_S_MAX, 0.05):
        raise MissingToolError(f"the server did not start in {_START_S_MAX:.0f} s: {process.log_tail()}")
    if not process.is_running:
        raise MissingToolError(f"the server ended at once: {process.log_tail()}")


def _answers(address: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", "/")
        connection.getresponse().read()
    except OSError:
        return False
    finally:
        connection.close()
    return True
