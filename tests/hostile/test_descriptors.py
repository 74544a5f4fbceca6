"""With few file descriptors there are fewer connections, and the broker neither fails nor spins."""

import threading
from contextlib import ExitStack

from logbrook.protocol.messages.api_versions import ApiVersionsRequest
from tests.hostile.victim import Victim
from tests.hostile.wire import receive_frame, request_frame

DESCRIPTORS = 600
ASK = request_frame(ApiVersionsRequest(), 0)


def is_served(victim: Victim, stack: ExitStack) -> bool:
    """Open a connection and return True if the broker accepts and serves it."""
    try:
        connected = stack.enter_context(victim.connect())
        connected.sendall(ASK)
        return receive_frame(connected) is not None
    except ConnectionError:
        return False


def test_at_the_limit_of_descriptors_some_are_served_others_closed_and_nothing_spins(victim: Victim) -> None:
    with ExitStack() as stack:
        served = sum(is_served(victim, stack) for _ in range(300))
        assert 16 <= served < 300
        before_s = victim.cpu_s
        threading.Event().wait(0.5)
        assert victim.cpu_s - before_s < 0.25


def test_nothing_is_left_open(victim: Victim) -> None:
    victim.check()
    assert victim.open_files < 100
