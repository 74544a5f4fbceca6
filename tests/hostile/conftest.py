"""One broker per module, started with the module's `FLAGS`. Every test checks that it still works afterwards."""

from collections.abc import Iterator

import pytest

from tests.hostile.victim import MIB, Victim

# Growth of memory that a test may cause: the allocator and caches keep some.
GROWTH_BYTES_MAX = 48 * MIB


@pytest.fixture(scope="module")
def victim(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    flags: tuple[str, ...] = getattr(request.module, "FLAGS", ())
    descriptors: int | None = getattr(request.module, "DESCRIPTORS", None)
    with Victim(str(tmp_path_factory.mktemp("data")), *flags, descriptors=descriptors) as victim:
        yield victim


@pytest.fixture(autouse=True)
def unharmed(request: pytest.FixtureRequest, victim: Victim) -> Iterator[None]:
    """Check that the broker still serves valid requests, has logged no bug and has not grown."""
    victim.forget_errors()
    before = victim.memory_bytes
    yield
    victim.check()
    assert victim.memory_bytes - before < getattr(request.module, "GROWTH_BYTES_MAX", GROWTH_BYTES_MAX)
