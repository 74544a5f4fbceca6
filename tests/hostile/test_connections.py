"""More connections than there may be: those above are closed as they come, and the others notice nothing."""

from contextlib import ExitStack

from logbrook.protocol.messages.api_versions import ApiVersionsRequest
from logbrook.testing.kill.waiting import wait_until
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


def test_connections_above_the_most_are_closed_and_the_others_served(victim: Victim) -> None:
    with ExitStack() as stack:
        connected = [stack.enter_context(victim.connect()) for _ in range(CONNECTIONS_MAX)]
        for one in connected:
            one.sendall(ASK)
        assert all(receive_frame(one) for one in connected)
        assert not any(is_let_in(victim) for _ in range(50))
        for one in connected:
            one.sendall(ASK)
        assert all(receive_frame(one) for one in connected)


def test_there_is_room_again_when_connections_are_closed(victim: Victim) -> None:
    for _ in range(3):
        with ExitStack() as stack:
            for _ in range(CONNECTIONS_MAX):
                stack.enter_context(victim.connect())
            assert wait_until(lambda: not is_let_in(victim), 5.0)
        assert wait_until(lambda: is_let_in(victim), 5.0)
        victim.check()


def test_thousands_of_short_connections_leave_nothing_behind(victim: Victim) -> None:
    before = victim.open_files
    for number in range(1500):
        with victim.connect() as connected:
            if number % 3:
                connected.sendall(ASK[: number % len(ASK)])
    victim.check()
    assert victim.open_files <= before + 2
