"""SaslAuthenticate: one step of the authentication that SaslHandshake has begun.

After a failure the connection is closed. The response is delayed, and does not say whether the user exists.
A re-authentication keeps the principal (CVE-2021-38153); the session it renews stays valid until it ends.
"""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from logbrook.server.api import Api, RequestContext
from logbrook.server.security.errors import PUBLIC_REASON, AuthenticationFailedError
from logbrook.server.security.sasl import Authenticated, SaslExchange
from logbrook.server.services import Services
from logbrook.server.session import ConnectionSession


async def handle(
    services: Services, request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    session = context.session
    exchange = session.exchange
    if not session.protocol.uses_sasl:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=f"a listener with {session.protocol} has no SASL"
        )
    if exchange is None or session.is_authenticating:
        session.is_failed = True
        reason = "SaslAuthenticate without SaslHandshake, or before the response to the last one"
        services.audit.authentication_failed(session.host, session.listener, "", "", reason)
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="SaslHandshake comes before SaslAuthenticate"
        )
    session.is_authenticating = True
    try:
        token, authenticated, failure = await exchange.step(bytes(request.auth_bytes))
        if failure is not None:
            # Some clients give up now, and do not ask for the error.
            await _record(services, session, exchange, failure)
        if authenticated is None:
            return SaslAuthenticateResponse(auth_bytes=token)
        lifetime_ms = _begin_session(services, session, exchange, authenticated)
    except AuthenticationFailedError as error:
        if not error.is_recorded:
            await _record(services, session, exchange, error)
        session.is_failed = True
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=f"{PUBLIC_REASON} ({exchange.mechanism})"
        )
    finally:
        session.is_authenticating = False
    return SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms or 0)


API = Api(SaslAuthenticateRequest, SaslAuthenticateResponse, handle)


async def _record(
    services: Services, session: ConnectionSession, exchange: SaslExchange, error: AuthenticationFailedError
) -> None:
    """Record a failure, and return when it may be answered."""
    error.is_recorded = True
    services.probe.authentication_failures += 1
    delay_s = services.authentication.count_failure(
        session.host, exchange.mechanism, exchange.user, error, session.listener
    )
    await session.wait(delay_s)


def _begin_session(
    services: Services, session: ConnectionSession, exchange: SaslExchange, authenticated: Authenticated
) -> int | None:
    """Return the lifetime of the session. Raises AuthenticationFailedError."""
    if session.is_authenticated and authenticated.principal != session.principal:
        raise AuthenticationFailedError(f"{session.principal} re-authenticated as {authenticated.principal}")
    session.exchange = None
    session.has_raw_tokens = False
    session.principal = authenticated.principal
    session.mechanism = exchange.mechanism
    session.is_authenticated = True
    lifetime_ms = services.authentication.lifetime_ms(authenticated)
    session.expires_s = None if lifetime_ms is None else services.clock.monotonic_s() + lifetime_ms / 1000
    services.probe.authentications += 1
    services.audit.authenticated(session, exchange.mechanism)
    return lifetime_ms
