"""With few file descriptors there are fewer connections with TLS, and the broker neither fails nor spins."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.hostile.secure_victim import SecureVictim
from tests.sasl_kit import SaslSocket

DESCRIPTORS = 600


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureVictim]:
    with SecureVictim(tmp_path_factory.mktemp("secure"), descriptors=DESCRIPTORS) as victim:
        yield victim


def is_served(victim: SecureVictim, stack: ExitStack) -> bool:
    """Open a connection with TLS, and return True if the broker serves it."""
    try:
        connected = SaslSocket(stack.enter_context(victim.connect_tls()))
        connected.ask_versions()
    except (EOFError, OSError):
        return False
    return True


def test_at_the_limit_of_descriptors_some_are_served_and_nothing_spins(victim: SecureVictim) -> None:
    with ExitStack() as stack:
        served = sum(is_served(victim, stack) for _ in range(150))
        assert 16 <= served < 150
        # Connections without a handshake take the rest.
        for name in ("TLS", "BOTH") * 100:
            with suppress(OSError):
                stack.enter_context(victim.connect(port=victim.ports[name]))
        before_s = victim.cpu_s
        threading.Event().wait(0.5)
        assert victim.cpu_s - before_s < 0.25
        assert victim.open_files < DESCRIPTORS - 300
    with ExitStack() as stack:
        assert victim.wait_until(lambda: is_served(victim, stack), 20.0), "there is no room again afterwards"
    victim.check_secure()
