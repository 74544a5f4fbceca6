"""More connections than the limit: silent ones are closed, and those with requests are not affected."""

from contextlib import ExitStack

from logbrook.protocol.messages.api_versions import ApiVersionsRequest
from logbrook.testing.processes import wait_until
from tests.hostile.victim import Victim
from tests.hostile.wire import receive_frame, request_frame

CONNECTIONS_MAX = 40
FLAGS = ("--network-connections-max", str(CONNECTIONS_MAX))
ASK = request_frame(ApiVersionsRequest(), 0)


def is_let_in(victim: Victim) -> bool:
    try:
        with victim.connect() as connected:
            connected.sendall(ASK)
            return receive_frame(connected) is not None
    except ConnectionError:
        return False


def test_connections_above_the_limit_are_closed_and_the_others_served(victim: Victim) -> None:
    with ExitStack() as stack:
        connected = [stack.enter_context(victim.connect()) for _ in range(CONNECTIONS_MAX)]
        for connection in connected:
            connection.sendall(ASK)
        assert all(receive_frame(connection) for connection in connected)
        assert not any(is_let_in(victim) for _ in range(50))
        for connection in connected:
            connection.sendall(ASK)
        assert all(receive_frame(connection) for connection in connected)


def test_new_connections_are_accepted_after_others_have_closed(victim: Victim) -> None:
    for _ in range(3):
        with ExitStack() as stack:
            for _ in range(CONNECTIONS_MAX):
                stack.enter_context(victim.connect()).sendall(ASK)
            assert wait_until(lambda: not is_let_in(victim), 5.0)
        assert wait_until(lambda: is_let_in(victim), 5.0)
        victim.check()


def test_connections_that_send_nothing_do_not_block_other_clients(victim: Victim) -> None:
    with ExitStack() as stack:
        for _ in range(10 * CONNECTIONS_MAX):
            stack.enter_context(victim.connect())
        victim.check()
        for _ in range(10):
            assert is_let_in(victim)


def test_thousands_of_short_connections_leave_no_state(victim: Victim) -> None:
    before = victim.open_files
    for number in range(1500):
        with victim.connect() as connected:
            if number % 3:
                connected.sendall(ASK[: number % len(ASK)])
    victim.check()
    assert victim.open_files <= before + 2
