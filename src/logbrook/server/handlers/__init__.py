"""The handlers of Kafka's requests: one module per API, named after it.

Each module declares `API = Api(Request, Response, handle)`. `handle(services, request, context)` gets the request in
one shape for all versions and returns the response, or a future or coroutine of it. It reports errors in the response's
error codes (`errors.error_reply`); any exception that leaves it is a bug. A handler makes all its decisions before its
first await, so that pipelined requests take effect in order.

The modules are the list of served APIs: the dispatcher and the ApiVersions response are derived from it. For any other
API key the connection is closed, as in Kafka.

A handler may import everything that `server` may, but no other handler.
"""

import importlib
import pkgutil
from functools import cache
from typing import Any

from logbrook.server.api import Api


@cache
def all_apis() -> tuple[Api[Any], ...]:
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return tuple(importlib.import_module(f"{__name__}.{name}").API for name in names)
