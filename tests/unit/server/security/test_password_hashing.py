"""Hashing of passwords: addresses take turns, and the number of those that wait is bounded."""

import asyncio
from contextlib import suppress

import pytest

from logbrook.model.security import SaslMechanism, ScramCredential
from logbrook.server.security.errors import AuthenticationFailedError
from logbrook.server.security.password_hashing import PasswordHashing

STORED = ScramCredential(b"0123456789abcdef", b"", b"", 1)
WAITING_MAX = 8


def hashed(hosts: list[str]) -> tuple[list[str], list[str]]:
    """Let passwords of these hosts arrive at once. Returns the hosts in the order of their hashes, and the refused."""
    order: list[str] = []
    refused: list[str] = []

    async def run() -> None:
        hashing = PasswordHashing(asyncio.get_running_loop(), WAITING_MAX)

        async def derive(host: str) -> None:
            try:
                await hashing.derive(host, SaslMechanism.SCRAM_SHA_256, "password", STORED)
                order.append(host)
            except AuthenticationFailedError:
                refused.append(host)

        await asyncio.gather(*map(derive, hosts))
        hashing.stop()

    asyncio.run(run())
    return order, refused


def test_addresses_take_turns() -> None:
    order, refused = hashed([*"aaaaaa", "b", "c"])
    # The first of `a` is hashed at once.
    assert order[:4] == ["a", "a", "b", "c"]
    assert sorted(order) == sorted([*"aaaaaa", "b", "c"])
    assert refused == []


def test_beyond_the_bound_the_address_with_the_most_passwords_is_refused() -> None:
    order, refused = hashed(["a"] * 20 + ["b", "c", "d"])
    assert set(refused) == {"a"}
    assert {"b", "c", "d"} <= set(order)
    assert len(order) == WAITING_MAX + 1


def test_a_waiting_client_that_is_cancelled_does_not_stop_the_others() -> None:
    async def run() -> None:
        hashing = PasswordHashing(asyncio.get_running_loop())
        waiting = [
            asyncio.create_task(hashing.derive("a", SaslMechanism.SCRAM_SHA_256, "password", STORED)) for _ in range(5)
        ]
        await asyncio.sleep(0)
        for task in waiting[:3]:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await waiting[0]
        credentials = await asyncio.gather(*waiting[3:])
        assert credentials[0] == credentials[1]
        hashing.stop()

    asyncio.run(run())


def test_an_error_of_the_hash_reaches_its_caller_only() -> None:
    async def run() -> None:
        hashing = PasswordHashing(asyncio.get_running_loop())
        with pytest.raises(ValueError, match="iteration"):
            await hashing.derive("a", SaslMechanism.SCRAM_SHA_256, "p", STORED._replace(iterations=0))
        assert (await hashing.derive("a", SaslMechanism.SCRAM_SHA_256, "p", STORED)).stored_key
        hashing.stop()

    asyncio.run(run())
