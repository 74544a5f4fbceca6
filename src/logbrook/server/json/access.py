"""Access to the JSON listener: authentication of a connection, and the ACLs that each request needs.

A request needs the rights of the Kafka API that it corresponds to (`server.security.api_rights`). Rights are checked
before the resource is looked up, so that an error does not tell whether it exists.

A failed authentication is answered after a delay and closes the connection. A later one has to be of the same
principal (CVE-2021-38153): it renews the session when its token ends.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.model.security import SaslMechanism
from logbrook.protocol.json_frames import RequestType
from logbrook.protocol.json_requests import Authenticate
from logbrook.server.api import RequestContext
from logbrook.server.security.authorizer import Authorizer
from logbrook.server.security.errors import PUBLIC_REASON, AuthenticationFailedError
from logbrook.server.security.sasl import Authenticated
from logbrook.server.services import Services
from logbrook.server.session import ConnectionSession

# Served before the authentication, and after the session has expired.
OPEN_REQUESTS = frozenset({RequestType.AUTHENTICATE, RequestType.PING})
# Largest request of a client that is not authenticated: a token has a few KiB.
UNAUTHENTICATED_BYTES_MAX = 64 * 1024

_Check: TypeAlias = Callable[[Authorizer, RequestContext, Any], None]


class AuthenticationRequiredError(AuthenticationFailedError):
    """A request of a client that has not authenticated, or whose session has expired."""


def check_session(session: ConnectionSession, request_type: RequestType, now_s: float) -> None:
    """Raises AuthenticationRequiredError."""
    if request_type in OPEN_REQUESTS:
        return
    if not session.is_authenticated:
        raise AuthenticationRequiredError("send Authenticate first")
    if session.expires_s is not None and now_s >= session.expires_s:
        raise AuthenticationRequiredError("the session has expired; send Authenticate again")


def check_rights(services: Services, context: RequestContext, request_type: RequestType, request: Any) -> None:
    """Raises AuthorizationFailedError."""
    if services.authorizer.is_enabled:
        _CHECKS[request_type](services.authorizer, context, request)


def shows_topic(services: Services, context: RequestContext, topic: str) -> bool:
    """Return True if the client may see the topic in a list."""
    return services.authorizer.allows(context, AclOperation.DESCRIBE, ResourceType.TOPIC, topic, is_audited=False)


def shows_settings(services: Services, context: RequestContext, topic: str) -> bool:
    return services.authorizer.allows(
        context, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic, is_audited=False
    )


async def authenticate(services: Services, request: Authenticate, context: RequestContext) -> dict[str, Any]:
    """Raises AuthenticationFailedError, with a text that does not tell whether the user exists."""
    session = context.session
    try:
        authenticated = await _verify(services, request, session.host)
        lifetime_ms = await _begin_session(services, session, request, authenticated)
    except AuthenticationFailedError:
        services.probe.authentication_failures += 1
        session.is_failed = True
        raise AuthenticationFailedError(PUBLIC_REASON) from None
    finally:
        session.is_authenticating = False
    return {"principal": str(session.principal), "session_lifetime_ms": lifetime_ms}


async def _verify(services: Services, request: Authenticate, host: str) -> Authenticated:
    if request.token is not None:
        return await services.authentication.verify_token(request.token, host)
    assert request.user is not None
    assert request.password is not None
    return Authenticated(await services.authentication.verify_password(request.user, request.password, host))


async def _begin_session(
    services: Services, session: ConnectionSession, request: Authenticate, authenticated: Authenticated
) -> int | None:
    """Return the lifetime of the session. Raises AuthenticationFailedError."""
    mechanism = SaslMechanism.PLAIN if request.token is None else SaslMechanism.OAUTHBEARER
    principal = authenticated.principal
    if session.mechanism is not None and principal != session.principal:
        error = AuthenticationFailedError(f"{session.principal} re-authenticated as {principal}")
        await services.authentication.delay_failure(session.host, mechanism, principal.name, error, session.listener)
        raise error
    session.principal, session.mechanism, session.is_authenticated = principal, mechanism, True
    lifetime_ms = services.authentication.lifetime_ms(authenticated)
    session.expires_s = None if lifetime_ms is None else services.clock.monotonic_s() + lifetime_ms / 1000
    services.probe.authentications += 1
    services.audit.authenticated(session, mechanism)
    return lifetime_ms


def _topic(operation: AclOperation) -> _Check:
    return lambda authorizer, context, request: authorizer.check(context, operation, ResourceType.TOPIC, request.topic)


def _check_fetch(authorizer: Authorizer, context: RequestContext, request: Any) -> None:
    authorizer.check(context, AclOperation.READ, ResourceType.TOPIC, request.topic)
    if request.offset is None:
        authorizer.check(context, AclOperation.DESCRIBE, ResourceType.GROUP, request.group_id)


def _check_offset_commit(authorizer: Authorizer, context: RequestContext, request: Any) -> None:
    authorizer.check(context, AclOperation.READ, ResourceType.GROUP, request.group)
    authorizer.check(context, AclOperation.READ, ResourceType.TOPIC, request.topic)


def _check_offset_fetch(authorizer: Authorizer, context: RequestContext, request: Any) -> None:
    authorizer.check(context, AclOperation.DESCRIBE, ResourceType.GROUP, request.group)
    authorizer.check(context, AclOperation.DESCRIBE, ResourceType.TOPIC, request.topic)


def _check_create_topic(authorizer: Authorizer, context: RequestContext, request: Any) -> None:
    if not authorizer.allows_cluster(context, AclOperation.CREATE, is_audited=False):
        authorizer.check(context, AclOperation.CREATE, ResourceType.TOPIC, request.topic)


def _check_nothing(_authorizer: Authorizer, _context: RequestContext, _request: Any) -> None:
    """For requests that need no right, and for lists, which leave out what the client may not see."""


_CHECKS: Mapping[RequestType, _Check] = {
    RequestType.PRODUCE: _topic(AclOperation.WRITE),
    RequestType.FETCH: _check_fetch,
    RequestType.OFFSET_COMMIT: _check_offset_commit,
    RequestType.OFFSET_FETCH: _check_offset_fetch,
    RequestType.CREATE_TOPIC: _check_create_topic,
    RequestType.LIST_TOPICS: _check_nothing,
    RequestType.DESCRIBE_TOPIC: _topic(AclOperation.DESCRIBE),
    RequestType.DESCRIBE_PARTITION: _topic(AclOperation.DESCRIBE),
    RequestType.METRICS_FETCH: lambda authorizer, context, _: authorizer.check_cluster(context, AclOperation.DESCRIBE),
    RequestType.PING: _check_nothing,
    RequestType.AUTHENTICATE: _check_nothing,
}
