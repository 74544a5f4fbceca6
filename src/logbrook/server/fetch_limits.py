"""How much a fetch is answered with, and how long it may wait, whatever the client asks for."""

from logbrook.server.services import Services

# What a fetch gets while clients hold up more answers than `answers_bytes_max`.
_SCARCE_BYTES = 64 * 1024


def fetch_bytes_max(services: Services, asked: int) -> int:
    config = services.config.network
    bytes_max = min(asked, config.fetch_bytes_max)
    if services.unsent_bytes >= config.answers_bytes_max:
        bytes_max = min(bytes_max, _SCARCE_BYTES)
    return max(0, bytes_max)


def fetch_deadline_s(services: Services, max_wait_ms: int) -> float:
    """A time of the event loop. It is no later than a client may be idle: one that is gone is noticed, at the latest,
    when it is answered."""
    wait_ms = min(max_wait_ms, services.config.network.connection_idle_ms)
    return services.loop.time() + max(0, wait_ms) / 1000
