"""Reproducible randomness."""

from random import Random


class SeededRandom:
    """The `Random` port, drawing from a seed."""

    def __init__(self, seed: int | str = 0) -> None:
        self._random = Random(seed)

    def token(self, length: int) -> bytes:
        return self._random.randbytes(length)
