"""One broker per module, started with the module's `FLAGS`, that has to be unharmed after every test."""

from collections.abc import Iterator

import pytest

from tests.hostile.victim import MIB, Victim

# What may stay behind of a test: the allocator keeps some, and so do caches.
GROWTH_BYTES_MAX = 48 * MIB


@pytest.fixture(scope="module")
def victim(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    flags: tuple[str, ...] = getattr(request.module, "FLAGS", ())
    descriptors: int | None = getattr(request.module, "DESCRIPTORS", None)
    with Victim(str(tmp_path_factory.mktemp("data")), *flags, descriptors=descriptors) as victim:
        yield victim


@pytest.fixture(autouse=True)
def unharmed(request: pytest.FixtureRequest, victim: Victim) -> Iterator[None]:
    """It still serves those who behave, has found no bug in itself, and has not grown."""
    victim.forget_errors()
    victim.check()
    before = victim.memory_bytes
    yield
    victim.check()
    assert victim.memory_bytes - before < getattr(request.module, "GROWTH_BYTES_MAX", GROWTH_BYTES_MAX)
