"""The audit log: who authenticated, what was denied, and every administrative change; by whom, from where, the result.

Events go to the logger `logbrook.audit`, and as one JSON object each to the sinks: a file, the topic `__audit`.

    {"ts": "2026-01-31T12:00:00.000Z", "event": "administrative change", "principal": "User:alice", "host": "10.0.0.7",
     "listener": "CLIENTS", "client_id": "admin", "action": "delete topic", "resource": "topic orders", "result": "ok"}

Changes that were made are always recorded. Events that a client can cause at will (authentications, denials and refused
changes) are limited in number (`audit_limits`); those suppressed are counted. Secrets are in no event: fields whose
name suggests one are hidden, and the callers pass names of settings and users, never passwords, salts or tokens.
"""

import asyncio
import json
from datetime import UTC, datetime
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, Protocol

from logbrook.model.event_log import event_logger
from logbrook.model.security import SaslMechanism
from logbrook.ports import Clock
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.schema import ApiMessage
from logbrook.server.logs import plain_fields
from logbrook.server.security.audit_limits import AuditLimits
from logbrook.server.security.audited_apis import changes_of
from logbrook.server.session import ConnectionSession

if TYPE_CHECKING:
    from logbrook.server.api import HandlerResult, RequestContext

# Names of the sinks.
FILE = "file"
TOPIC = "topic"
SINKS = (FILE, TOPIC)

_AUTHENTICATED = "client authenticated"
_FAILED_AUTHENTICATION = "authentication failed"
_DENIED_OPERATION = "operation denied"
_CHANGE = "administrative change"
_SUPPRESSED = "audit events suppressed"
_EVENTS = (_AUTHENTICATED, _FAILED_AUTHENTICATION, _DENIED_OPERATION, _CHANGE, _SUPPRESSED)

_OK = "ok"
_FAILED = "failed"
_DENIED = "denied"
# These are recorded as denials, by the authorizer.
_DENIALS = frozenset(code for code in ErrorCode if code.name.endswith("_AUTHORIZATION_FAILED"))

_logger = event_logger("logbrook.audit")


class AuditSink(Protocol):
    """A destination of events, as JSON lines. It never blocks: what it cannot take is dropped and counted."""

    dropped: int

    def write(self, line: bytes) -> None: ...

    def reopen(self) -> None: ...


class AuditLog:
    """One per broker, on the event loop."""

    def __init__(self, clock: Clock) -> None:
        self.sinks: dict[str, AuditSink] = {}
        self.recorded = dict.fromkeys(_EVENTS, 0)
        self.suppressed = 0
        self._clock = clock
        self._limits = AuditLimits(clock)

    def authenticated(self, session: ConnectionSession, mechanism: SaslMechanism) -> None:
        self._record_limited(
            f"authenticated {session.principal} {session.host}",
            _AUTHENTICATED,
            principal=session.principal,
            host=session.host,
            listener=session.listener,
            mechanism=mechanism,
            result=_OK,
        )

    def authentication_failed(self, host: str, listener: str, mechanism: str, user: str, reason: str) -> None:
        """Record a failure; `user` is the name that the client gave, which need not exist."""
        self._record_limited(
            f"authentication {host}",
            _FAILED_AUTHENTICATION,
            user=user,
            host=host,
            listener=listener,
            mechanism=mechanism,
            reason=reason,
            result=_FAILED,
        )

    def denied(self, context: "RequestContext", operation: str, resource_type: str, name: str) -> None:
        self._record_limited(
            f"denied {context.principal} {operation} {resource_type}",
            _DENIED_OPERATION,
            **_client(context),
            operation=operation,
            resource=f"{resource_type} {name}",
            result=_DENIED,
        )

    def changed(
        self, context: "RequestContext", action: str, resource: str, *, error_code: int = 0, **fields: Any
    ) -> None:
        """Record an administrative change, or one that was refused with an error code."""
        if error_code in _DENIALS:
            return
        facts = {**_client(context), "action": action, "resource": resource, **fields}
        if error_code:
            result = ErrorCode(error_code).name
            self._record_limited(f"changed {context.principal} {action}", _CHANGE, **facts, result=result)
        else:
            self._record(_CHANGE, **facts, result=_OK)

    def watch(self, request: ApiMessage, context: "RequestContext", result: "HandlerResult") -> "HandlerResult":
        """Return the result of a handler of an administrative API, whose changes are recorded when it is known."""
        if iscoroutine(result):
            return self._watched(request, context, result)
        if isinstance(result, asyncio.Future):
            result.add_done_callback(lambda done: self._on_done(request, context, done))
        elif result is None or isinstance(result, ApiMessage):
            self._record_changes(request, context, result)
        return result

    def dropped(self, name: str) -> int:
        """Return the number of events that a sink could not take; 0 if it is not in use."""
        return self.sinks[name].dropped if name in self.sinks else 0

    def reopen(self) -> None:
        for sink in self.sinks.values():
            sink.reopen()

    def finish(self) -> None:
        """Record the numbers of suppressed events that no event carries."""
        self._summarize(is_final=True)

    async def _watched(self, request: ApiMessage, context: "RequestContext", handling: Any) -> Any:
        response = await handling
        self._record_changes(request, context, response)
        return response

    def _on_done(self, request: ApiMessage, context: "RequestContext", done: "asyncio.Future[Any]") -> None:
        if not done.cancelled() and done.exception() is None:
            self._record_changes(request, context, done.result())

    def _record_changes(self, request: ApiMessage, context: "RequestContext", response: ApiMessage | None) -> None:
        for change in changes_of(request, response):
            self.changed(context, change.action, change.resource, error_code=change.error_code, **change.fields)

    def _record_limited(self, key: str, event: str, **fields: Any) -> None:
        self._summarize()
        suppressed = self._limits.admit(key[:200])
        if suppressed is None:
            self.suppressed += 1
            return
        self._record(event, **fields, **({"suppressed": suppressed} if suppressed else {}))

    def _summarize(self, *, is_final: bool = False) -> None:
        for key, count in self._limits.summaries(is_final=is_final):
            self._record(_SUPPRESSED, kind=key or "various", suppressed=count)

    def _record(self, event: str, **fields: Any) -> None:
        self.recorded[event] += 1
        log = _logger.info if fields.get("result", _OK) == _OK else _logger.warning
        log(event, **fields)
        if self.sinks:
            time = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
            ts = time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            line = json.dumps({"ts": ts, "event": event, **plain_fields(fields)}).encode() + b"\n"
            for sink in self.sinks.values():
                sink.write(line)


def _client(context: "RequestContext") -> dict[str, Any]:
    return {
        "principal": context.principal,
        "host": context.host,
        "listener": context.listener,
        "client_id": context.client_id,
    }
