"""Randomness, for names that nobody can guess."""

import secrets
from typing import Protocol


class Random(Protocol):
    def token(self, length: int) -> bytes:
        """`length` bytes that cannot be told in advance."""
        ...


class SystemRandom:
    def token(self, length: int) -> bytes:
        return secrets.token_bytes(length)
