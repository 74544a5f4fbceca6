"""Silent connections give way to new ones at a limit; connections with a request never do."""

import socket
from contextlib import ExitStack

from tests.unit.server.shell_kit import Shell, is_hung_up_on, until
from tests.unit.server.test_listener import is_served

CONNECTIONS_MAX = 16


def connect_from(shell: Shell, address: str) -> socket.socket:
    """Connect from another address of the loopback network."""
    return socket.create_connection(shell.address, timeout=20.0, source_address=(address, 0))


def test_at_the_limit_the_oldest_silent_connection_gives_way() -> None:
    with Shell({"network": {"connections_max": CONNECTIONS_MAX}}) as shell, ExitStack() as stack:
        busy = stack.enter_context(shell.connect())
        assert is_served(busy)
        silent = [stack.enter_context(shell.connect()) for _ in range(CONNECTIONS_MAX - 1)]
        until(lambda: len(shell.connections()) == CONNECTIONS_MAX)
        late = [stack.enter_context(shell.connect()) for _ in range(3)]
        assert all(map(is_served, late))
        assert all(map(is_hung_up_on, silent[:3]))
        assert all(map(is_served, [busy, *silent[3:]]))
        assert len(shell.connections()) == CONNECTIONS_MAX
        probe = shell.services.probe
        assert (probe.connections_refused, probe.connections_reaped) == (0, 3)


def test_an_address_at_its_limit_does_not_block_other_addresses() -> None:
    with Shell({"network": {"connections_per_address_max": 4}}) as shell, ExitStack() as stack:
        clients = [stack.enter_context(shell.connect()) for _ in range(4)]
        assert all(map(is_served, clients))
        with shell.connect() as refused:
            assert is_hung_up_on(refused)
        other = stack.enter_context(connect_from(shell, "127.0.0.2"))
        assert all(map(is_served, [*clients, other]))
        clients[0].close()
        until(lambda: len(shell.connections()) == 4)
        assert is_served(stack.enter_context(shell.connect()))


def test_at_the_limit_of_an_address_one_of_its_own_silent_connections_gives_way() -> None:
    with Shell({"network": {"connections_per_address_max": 2}}) as shell, ExitStack() as stack:
        other = stack.enter_context(connect_from(shell, "127.0.0.2"))
        first = stack.enter_context(shell.connect())
        second = stack.enter_context(shell.connect())
        until(lambda: len(shell.connections()) == 3)
        third = stack.enter_context(shell.connect())
        assert is_served(third)
        assert is_hung_up_on(first)
        assert all(map(is_served, [other, second]))
