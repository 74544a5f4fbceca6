"""The audit log: who authenticated, what was denied, and every administrative change.

Events go to the logger `logbrook.audit`. Events that any client can cause are rate-limited per address and kind.
"""

from typing import TYPE_CHECKING, Any

from logbrook.model.event_log import event_logger
from logbrook.model.security import SaslMechanism
from logbrook.ports import Clock
from logbrook.server.logs import RateLimitedWarnings
from logbrook.server.session import ConnectionSession

if TYPE_CHECKING:
    from logbrook.server.api import RequestContext

_logger = event_logger("logbrook.audit")


class AuditLog:
    """One per broker, on the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._warnings = RateLimitedWarnings(_logger, clock)

    def authenticated(self, session: ConnectionSession, mechanism: SaslMechanism) -> None:
        _logger.info(
            "client authenticated",
            principal=session.principal,
            host=session.host,
            listener=session.listener,
            mechanism=mechanism,
        )

    def authentication_failed(self, host: str, listener: str, mechanism: str, user: str, reason: str) -> None:
        self._warnings.warn(
            f"authentication {host}",
            "authentication failed",
            host=host,
            listener=listener,
            mechanism=mechanism,
            user=user,
            reason=reason,
        )

    def denied(self, context: "RequestContext", operation: str, resource_type: str, name: str) -> None:
        self._warnings.warn(
            f"denied {context.principal} {operation} {resource_type}",
            "operation denied",
            principal=context.principal,
            host=context.host,
            operation=operation,
            resource_type=resource_type,
            resource=name,
        )

    def changed(self, context: "RequestContext", action: str, resource: str, **fields: Any) -> None:
        _logger.info(
            "administrative change",
            principal=context.principal,
            host=context.host,
            action=action,
            resource=resource,
            **fields,
        )
