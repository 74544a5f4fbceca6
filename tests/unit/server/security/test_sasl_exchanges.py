"""Exchanges of SASL, token by token."""

import asyncio

import pytest

from logbrook.server.security.errors import AuthenticationFailedError
from logbrook.server.security.sasl import Authenticated, OAuthExchange


async def refuse(_token: str) -> Authenticated:
    raise AuthenticationFailedError("the token has expired")


@pytest.mark.parametrize("message", [b"garbage", b"", b"n,,\x01auth=Basic abc\x01\x01", "n,,ä\x01\x01".encode()])
def test_a_malformed_bearer_message_is_refused_at_once(message: bytes) -> None:
    with pytest.raises(AuthenticationFailedError, match="OAUTHBEARER message"):
        asyncio.run(OAuthExchange(refuse).step(message))


def test_a_refused_token_is_answered_with_an_error_object_and_fails_at_the_next_step() -> None:
    exchange = OAuthExchange(refuse)
    step = asyncio.run(exchange.step(b"n,,\x01auth=Bearer abc\x01\x01"))
    assert (step.token, step.authenticated) == (b'{"status":"invalid_token"}', None)
    with pytest.raises(AuthenticationFailedError, match="has expired"):
        asyncio.run(exchange.step(b"\x01"))
