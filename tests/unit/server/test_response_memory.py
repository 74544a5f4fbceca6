"""The size of fetch responses follows from the memory that responses hold."""

import pytest

from logbrook.config import NetworkConfig
from logbrook.server.response_memory import SCARCE_FETCH_BYTES, ResponseMemory
from tests.unit.server.shell_kit import MIB


@pytest.mark.parametrize(
    ("used_mib", "bytes_max", "is_scarce", "is_exhausted"),
    [
        (0, 16 * MIB, False, False),
        (32, 16 * MIB, False, False),
        (40, 8 * MIB, False, False),
        (48, SCARCE_FETCH_BYTES, True, False),
        (63, SCARCE_FETCH_BYTES, True, False),
        (64, SCARCE_FETCH_BYTES, True, True),
    ],
)
def test_a_fetch_gets_the_memory_below_three_quarters_of_the_limit(
    used_mib: int, bytes_max: int, is_scarce: bool, is_exhausted: bool
) -> None:
    memory = ResponseMemory(NetworkConfig(answers_bytes_max=64 * MIB, fetch_bytes_max=16 * MIB))
    memory.used_bytes = used_mib * MIB
    assert memory.fetch_bytes_max(100 * MIB) == bytes_max
    assert memory.fetch_bytes_max(1_000) == 1_000
    assert memory.fetch_bytes_max(-1) == 0
    assert (memory.is_scarce, memory.is_exhausted) == (is_scarce, is_exhausted)
